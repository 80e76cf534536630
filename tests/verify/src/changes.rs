//! What git says of this folder: the hash of its files, and what changed since a base.

use std::io;
use std::path::Path;
use std::process::Command;

/// Git's hash of all files as they are now, those that are not committed yet included: a run before the commit and one after it are of the same tree.
///
/// # Errors
///
/// Where there is no git, or this is no checkout.
pub fn tree() -> io::Result<String> {
    // A copy of the index: what is staged stays as it is.
    let index = git(&["rev-parse", "--git-path", "index"], None)?;
    let copy = Path::new("target").join("slice.index");
    std::fs::create_dir_all("target")?;
    std::fs::copy(index, &copy)?;
    let copy = copy.canonicalize()?;
    git(&["add", "--all"], Some(&copy))?;
    let tree = git(&["write-tree"], Some(&copy));
    std::fs::remove_file(&copy)?;
    tree
}

/// The number that a tree's hash gives its slice: short enough to type.
pub fn number(tree: &str) -> u64 {
    let digits = tree.get(..8).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default() % 1_000_000
}

/// The commit that the tree is compared with: the one that was named, else where this branch left `origin/HEAD`. None on a fresh clone.
pub fn base(named: Option<&str>) -> Option<String> {
    if let Some(named) = named {
        return Some(named.to_owned());
    }
    let base = git(&["merge-base", "HEAD", "origin/HEAD"], None).ok()?;
    let head = git(&["rev-parse", "HEAD"], None).ok()?;
    (base != head).then_some(base)
}

/// The files that differ between a commit and what is here now.
///
/// # Errors
///
/// If there is no such commit.
pub fn since(base: &str) -> io::Result<Vec<String>> {
    let changed = git(&["diff", "--name-only", "--no-renames", base], None)?;
    let new = git(&["ls-files", "--others", "--exclude-standard"], None)?;
    let lines = changed.lines().chain(new.lines());
    Ok(lines.map(str::to_owned).collect())
}

/// The day of the last commit, such as `2026-11-29`: what is old is old in this history, whenever somebody looks at it.
///
/// # Errors
///
/// Where there is no git, or this is no checkout.
pub fn day() -> io::Result<String> {
    git(&["log", "-1", "--format=%cs"], None)
}

fn git(arguments: &[&str], index: Option<&Path>) -> io::Result<String> {
    let mut git = Command::new("git");
    git.args(arguments);
    if let Some(index) = index {
        git.env("GIT_INDEX_FILE", index);
    }
    let output = git.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!(
            "git {}: {}",
            arguments.join(" "),
            said.trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
