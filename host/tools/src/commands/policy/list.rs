//! `kproxide policy show list`: the policies that there are.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use kproxide_builtins::BUILTINS;
use serde::Serialize;

use super::given::Tools;
use crate::args::Format;
use crate::args::policy::List;
use crate::commands::Exit;
use crate::commands::exit::Mistake;
use crate::commands::plan::print;
use crate::whatif::table;
use kproxide_policy::{Directories, PolicyFile, digest};

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    kinds: Vec<&'static str>,
    version: String,
    description: String,
    bytes: usize,
    digest: String,
    /// It comes from a folder: with the name of a built-in policy it replaces that.
    file: bool,
    /// Why kproxide would not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// # Errors
/// The output is closed.
pub(super) async fn list(args: &List, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    if let Some(none) = args.policy_dir.iter().find(|folder| !folder.is_dir()) {
        let none = none.display();
        return Err(Mistake(format!("--policy-dir {none}: there is no such folder")).into());
    }
    let tools = Tools::new()?;
    let mut all = Vec::new();
    let mut files = Directories::new(&args.policy_dir).read(&BTreeSet::new());
    for builtin in BUILTINS {
        let of_file = files.remove(builtin.name).and_then(decides);
        let is_file = of_file.is_some();
        let bytes = of_file.unwrap_or_else(|| Ok(builtin.wasm.into()));
        all.push(Listed::of(builtin.name, bytes, is_file, &tools).await);
    }
    let others = files.into_iter();
    for (name, bytes) in others.filter_map(|(name, files)| Some((name, decides(files)?))) {
        all.push(Listed::of(&name, bytes, true, &tools).await);
    }
    match args.output {
        Format::Text => write!(out, "{}", text(&all)?)?,
        format @ (Format::Json | Format::Yaml) => print(out, format, &all)?,
    }
    Ok(Exit::Success)
}

/// That of the last directory.
fn decides(files: Vec<PolicyFile>) -> Option<Result<Arc<[u8]>, String>> {
    let content = files.into_iter().next()?.content;
    let content = content.map_err(|error| error.to_string());
    Some(content.and_then(|it| it.read_here().map_err(|error| error.to_string())))
}

impl Listed {
    async fn of(name: &str, file: Result<Arc<[u8]>, String>, is_file: bool, tools: &Tools) -> Self {
        let (bytes, sha256) = match &file {
            Ok(bytes) => (bytes.len(), digest(bytes).to_string()),
            Err(_) => (0, String::new()),
        };
        let module = match file {
            Ok(bytes) => {
                let loaded = match is_file {
                    true => tools.engine.load_file(bytes).await,
                    false => tools.engine.load(bytes).await,
                };
                loaded.map_err(|error| error.to_string())
            }
            Err(problem) => Err(problem),
        };
        let mut listed = Self {
            name: name.to_owned(),
            kinds: Vec::new(),
            version: String::new(),
            description: String::new(),
            bytes,
            digest: sha256,
            file: is_file,
            refused: None,
        };
        match module {
            Ok(module) => {
                listed.kinds = module.kinds().iter().map(|kind| kind.as_str()).collect();
                listed.version.clone_from(&module.info().version);
                listed.description.clone_from(&module.info().description);
            }
            Err(problem) => listed.refused = Some(problem),
        }
        listed
    }
}

fn text(all: &[Listed]) -> Result<String, std::fmt::Error> {
    let rows = all.iter().map(|it| {
        let whose = match it.file {
            true => "file",
            false => "built-in",
        };
        let what = match &it.refused {
            Some(problem) => format!("refused: {problem}"),
            None => it.description.clone(),
        };
        vec![
            it.name.clone(),
            it.kinds.join(", "),
            whose.to_owned(),
            it.version.clone(),
            // As git shows commits. `digest` and -o json show all of it.
            it.digest.chars().take(12).collect(),
            what,
        ]
    });
    let heads = ["NAME", "KIND", "FROM", "VERSION", "DIGEST", "WHAT IT DOES"];
    let mut text = String::new();
    table(&mut text, "", &heads, rows.collect(), usize::MAX, 120)?;
    Ok(text.trim_start_matches('\n').to_owned())
}
