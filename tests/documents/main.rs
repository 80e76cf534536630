//! What people read: every link leads somewhere, every command works, every field of the objects is shown.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod commands;
mod links;
mod objects;
mod troubleshooting;

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the repository.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().unwrap()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// The files below a folder of the repository, by their paths from its root, without what builds leave there.
fn files(below: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            if name == "target" || name == ".git" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(root()).unwrap();
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The pages that people read, from all folders.
fn pages() -> Vec<String> {
    let mut pages = files("");
    pages.retain(|file| file.ends_with(".md"));
    pages
}

/// The lines of a page with their numbers from 1, and what stands behind the fence of the block that they are in, such as
/// `sh`. Fences are left out.
fn lines(text: &str) -> Vec<(usize, Option<&str>, &str)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(word) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(word),
            };
        } else {
            lines.push((index + 1, fence, line));
        }
    }
    lines
}
