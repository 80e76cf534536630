//! What Cargo's metadata and trees say of libraries, and which files of a crate are about its licence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

/// Something that others wrote, and that is linked.
#[derive(Clone, Debug, Default)]
pub struct Library {
    pub name: String,
    pub version: String,
    /// As SPDX writes it.
    pub license: Option<String>,
    pub authors: Vec<String>,
    /// Of a crate, on this computer.
    pub folder: Option<PathBuf>,
    /// Where its metadata say that the licence is, besides usual places.
    pub license_file: Option<PathBuf>,
    /// The packages that name it as a dependency.
    pub needed_by: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    version: String,
    source: Option<String>,
    license: Option<String>,
    license_file: Option<PathBuf>,
    authors: Vec<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

impl Package {
    /// Tests hold the sources of all packages to this: what comes from no registry is in this repository.
    pub(super) fn is_ours(&self) -> bool {
        self.source.is_none()
    }
}

pub(super) fn packages(metadata: &str) -> Result<Vec<Package>, String> {
    let metadata: Metadata =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(metadata.packages)
}

/// The crates of trees (`cargo tree --prefix=depth --format={p}`) that are not ours, each once, with what `cargo metadata` says of them.
///
/// # Errors
///
/// A tree is not as Cargo prints it, or has a crate that the metadata lack.
pub fn linked(metadata: &str, trees: &[&str]) -> Result<Vec<Library>, String> {
    let mut needed = BTreeMap::new();
    for tree in trees {
        walk(tree, &mut needed)?;
    }
    let mut libraries = Vec::new();
    for package in packages(metadata)? {
        let key = (package.name.clone(), package.version.clone());
        let Some(needed_by) = needed.remove(&key) else {
            continue;
        };
        if !package.is_ours() {
            libraries.push(Library::of(package, needed_by));
        }
    }
    if let Some(((name, version), _)) = needed.pop_first() {
        return Err(format!(
            "{name} {version} is in cargo's tree, and not in its metadata"
        ));
    }
    libraries.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(libraries)
}

/// Adds who needs what. A line is a depth, a name, a version and what else Cargo says: `2serde v1.0.229 (*)`.
fn walk(
    tree: &str,
    needed: &mut BTreeMap<(String, String), BTreeSet<String>>,
) -> Result<(), String> {
    let mut above: Vec<&str> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let unknown = || format!("cargo tree: {line:?}");
        let name = line.find(|c: char| !c.is_ascii_digit());
        let (depth, rest) = line.split_at(name.ok_or_else(unknown)?);
        let depth: usize = depth.parse().map_err(|_| unknown())?;
        let mut words = rest.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        let version = version.and_then(|version| version.strip_prefix('v'));
        let version = version.ok_or_else(unknown)?;
        above.truncate(depth);
        let by = needed
            .entry((name.to_owned(), version.to_owned()))
            .or_default();
        by.extend(above.last().map(|name| (*name).to_owned()));
        above.push(name);
    }
    Ok(())
}

impl Library {
    fn of(package: Package, needed_by: BTreeSet<String>) -> Self {
        let Package {
            name,
            version,
            source: _,
            license,
            license_file,
            mut authors,
            repository,
            manifest_path,
        } = package;
        if authors.is_empty() {
            let place = repository.map_or(String::new(), |place| format!(", {place}"));
            authors.push(format!("the authors of {name}{place}"));
        }
        let folder = manifest_path.parent().map(Path::to_owned);
        Self {
            license_file: folder.as_ref().zip(license_file).map(|(a, b)| a.join(b)),
            name,
            version,
            license,
            authors,
            folder,
            needed_by,
        }
    }

    /// What people call it.
    pub fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
            .trim_end()
            .to_owned()
    }

    /// The files about its licence, and whether one of them is about all of it: others are about what it copied from elsewhere.
    pub(super) fn license_files(&self) -> io::Result<(Vec<PathBuf>, bool)> {
        let Some(folder) = &self.folder else {
            return Ok((Vec::new(), false));
        };
        let mut files = BTreeSet::from_iter(self.license_file.clone());
        license_files_below(folder, false, &mut files)?;
        let is_of_all = |file: &PathBuf| {
            file.parent() == Some(folder) || self.license_file.as_ref() == Some(file)
        };
        let has_one_of_all = files.iter().any(is_of_all);
        Ok((files.into_iter().collect(), has_one_of_all))
    }
}

/// `is_about` is whether the folder's own name says that its files are licences.
fn license_files_below(
    folder: &Path,
    is_about: bool,
    found: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if entry.file_type()?.is_dir() {
            license_files_below(&entry.path(), name == "licenses", found)?;
        } else if is_about || is_license(&name) {
            found.insert(entry.path());
        }
    }
    Ok(())
}

/// Such as `license-mit` or `copying.txt`, in small letters. Sources may be called so too.
pub fn is_license(name: &str) -> bool {
    let begins = [
        "licence",
        "license",
        "unlicense",
        "copying",
        "copyright",
        "notice",
    ];
    let ends = Path::new(name).extension().unwrap_or_default();
    let is_source = ["rs", "c", "h", "go", "js", "py", "json", "yaml", "toml"]
        .iter()
        .any(|source| ends == *source);
    !is_source && begins.iter().any(|begin| name.starts_with(begin))
}
