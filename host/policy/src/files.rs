//! Policy files: what lies in the policy directories now, read as one consistent whole.
//!
//! A ConfigMap mount is a folder of links into `..data`, which is itself a link that is swapped atomically. Reading through the links one by one can mix two
//! versions, so the folder behind `..data` is read and the link compared afterwards. Watching is the caller's; this only reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::content::Content;
use super::engine::{LoadError, UNPACKED_BYTES_MAX};
use kproxide_common::foreign;

/// Files as they lie there, by the name of their policy: that of the last directory first, then those of the same name in the directories before it.
pub type PolicyFiles = BTreeMap<Arc<str>, Vec<PolicyFile>>;

/// One file. One that cannot be used is there with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// For people.
    pub path: Arc<str>,
    pub content: Result<Content, FilesError>,
}

/// Policies in one directory, and their bytes together: a policy directory is no file store.
const FILES_MAX: usize = 100;
const TOTAL_BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FilesError {
    #[error("{path} cannot be read: {problem}")]
    Read { path: String, problem: String },
    #[error("{first} and {second} are both of this policy: remove one")]
    Twice { first: String, second: String },
    #[error(
        "{path} cannot be named by a NodePool, whose policies have lower-case letters, digits and dashes in their names: rename it {name}.wasm"
    )]
    Name { path: String, name: String },
    #[error(
        "{path} is no NAME.wasm, NAME.wasm.gz or NAME.wasm.zst, and kproxide reads no other file: rename it {name}.wasm"
    )]
    Ending { path: String, name: String },
    #[error(
        "{path} is not read: the policies of one directory are at most {FILES_MAX}, with {TOTAL_BYTES_MAX} bytes together, and those that NodePools \
         name come first: remove files that no NodePool names, or mount this one in a directory of its own"
    )]
    TooMany { path: String },
    #[error(transparent)]
    Load(#[from] LoadError),
}

#[cfg(any(test, feature = "lab"))]
impl PolicyFile {
    /// The only file of its name, which lies nowhere.
    pub fn alone(bytes: &[u8]) -> Vec<Self> {
        vec![Self {
            path: "(in memory)".into(),
            content: Ok(Arc::<[u8]>::from(bytes).into()),
        }]
    }
}

type InDirectory = BTreeMap<Arc<str>, PolicyFile>;

/// The policy directories; a later one wins, unless its file is refused.
#[derive(Debug)]
pub struct Directories(Vec<Directory>);

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// What lay in it when it could be read last.
    files: InDirectory,
    /// It was not there, and that is said once.
    is_missed: bool,
}

impl Directories {
    pub fn new(paths: &[PathBuf]) -> Self {
        Self(
            paths
                .iter()
                .map(|path| Directory {
                    path: path.clone(),
                    files: InDirectory::new(),
                    is_missed: false,
                })
                .collect(),
        )
    }

    /// Every `NAME.wasm`, `NAME.wasm.gz` and `NAME.wasm.zst` in the directories now.
    ///
    /// Where not all can be read, those of the policies that are `named` come first, then those that were read the last time.
    ///
    /// A directory that is not there is empty: an optional ConfigMap may come later, or go. One that cannot be read is as it was: that policies cannot be
    /// seen for a moment is no reason to decide without them.
    pub fn read(&mut self, named: &BTreeSet<Arc<str>>) -> PolicyFiles {
        let mut files = PolicyFiles::new();
        for Directory {
            path,
            files: last,
            is_missed,
        } in &mut self.0
        {
            let of_last = last.iter().filter(|(_, file)| file.content.is_ok());
            let first = First {
                named,
                had: &of_last.map(|(name, _)| name.clone()).collect(),
            };
            match read_directory(path, &first) {
                Ok(Some(found)) => (*last, *is_missed) = (found, false),
                Ok(None) => {
                    if !*is_missed {
                        tracing::warn!(directory = %path.display(), "policy directory is not there; it is empty until it is");
                    }
                    (*last, *is_missed) = (InDirectory::new(), true);
                }
                Err(error) => {
                    tracing::warn!(directory = %path.display(), %error, "policy directory cannot be read; what was read last still counts");
                }
            }
            for (name, file) in last {
                let of_name = files.entry(name.clone()).or_default();
                of_name.insert(0, file.clone());
            }
        }
        files
    }
}

/// What a pod has at these paths, as it would read its policy directories: the bytes were read elsewhere.
pub fn mounted(directories: &[PathBuf], files: &BTreeMap<String, Vec<u8>>) -> PolicyFiles {
    let mut found = PolicyFiles::new();
    for directory in directories {
        let paths = files.keys().map(PathBuf::from);
        let paths = paths.filter(|path| path.parent() == Some(directory));
        let first = First {
            named: &BTreeSet::new(),
            had: &BTreeSet::new(),
        };
        let read = |path: &Path| {
            let bytes = files.get(&path.display().to_string());
            Ok(bytes.map(|bytes| Arc::from(&**bytes)).unwrap_or_default())
        };
        for (name, file) in chosen(paths.collect(), directory, &first, read, |_, it| it.into()) {
            found.entry(name).or_default().insert(0, file);
        }
    }
    found
}

/// Which policies come first where not all can be read.
struct First<'a> {
    named: &'a BTreeSet<Arc<str>>,
    /// Those that could be read the last time.
    had: &'a BTreeSet<Arc<str>>,
}

/// `None`: it is not there.
fn read_directory(directory: &Path, first: &First<'_>) -> io::Result<Option<InDirectory>> {
    if !directory.try_exists()? {
        return Ok(None);
    }
    // The swap takes microseconds: three tries end on a whole version, or it is swapped in a loop and the next poll has another go.
    let mut tries = 3;
    loop {
        tries -= 1;
        let data = directory.join("..data");
        let target = fs::canonicalize(&data).ok();
        // The old version is removed right after the swap: it may be gone while it is read.
        let read = read_files(target.as_deref().unwrap_or(directory), directory, first);
        if target == fs::canonicalize(&data).ok() {
            return read.map(Some);
        }
        if tries == 0 {
            return Err(io::Error::other("it is being replaced all the time"));
        }
    }
}

/// Reads the version in `target`, and calls the files by their places in the mount: those outlive the version.
fn read_files(target: &Path, directory: &Path, first: &First<'_>) -> io::Result<InDirectory> {
    let paths = fs::read_dir(target)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    let content = |place: &Path, bytes: Arc<[u8]>| Content::on_disk(place.to_owned(), &bytes);
    Ok(chosen(paths, directory, first, read_file, content))
}

/// The policies among these files, and what is wrong with each that is none.
fn chosen(
    mut paths: Vec<PathBuf>,
    directory: &Path,
    first: &First<'_>,
    read: impl Fn(&Path) -> Result<Arc<[u8]>, FilesError>,
    content: impl Fn(&Path, Arc<[u8]>) -> Content,
) -> InDirectory {
    paths.sort_by_cached_key(|path| {
        let file_name = path.file_name().and_then(|name| name.to_str());
        let name = file_name.and_then(policy_name).unwrap_or_default();
        let (is_named, was_read) = (first.named.contains(name), first.had.contains(name));
        (!is_named, !was_read, path.clone())
    });
    let mut files = InDirectory::new();
    let mut misnamed = Vec::new();
    let mut bytes_left = TOTAL_BYTES_MAX;
    let mut paths_by_name = BTreeMap::<&str, &Path>::new();
    for path in &paths {
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some(name) = policy_name(file_name) else {
            continue;
        };
        let twice = paths_by_name.insert(name, path);
        let legal = legal_name(name);
        if legal != name {
            misnamed.push((name, legal, path));
            continue;
        }
        let too_many = || FilesError::TooMany { path: shown(path) };
        let bytes = match twice {
            Some(first) => Err(FilesError::Twice {
                first: shown(first),
                second: shown(path),
            }),
            None if files.len() >= FILES_MAX => Err(too_many()),
            None => read(path),
        };
        let bytes = bytes.and_then(|bytes| {
            let left = bytes_left.checked_sub(bytes.len()).ok_or_else(too_many)?;
            bytes_left = left;
            Ok(bytes)
        });
        let place = directory.join(file_name);
        let content = bytes.map(|bytes| content(&place, bytes));
        files.insert(name.into(), file_at(&place, content));
    }
    for (name, legal, path) in misnamed.into_iter().take(FILES_MAX) {
        // A pool that uses the legal name is told what to rename, unless there is a file of that name.
        let key = match files.contains_key(&*legal) {
            true => foreign::line(name, 63),
            false => legal.clone(),
        };
        let error = FilesError::Name {
            path: shown(path),
            name: legal,
        };
        files.insert(key.into(), file_at(path, Err(error)));
    }
    files
}

fn file_at(path: &Path, content: Result<Content, FilesError>) -> PolicyFile {
    PolicyFile {
        path: shown(path).into(),
        content,
    }
}

/// Whoever makes a file chooses its name, and with it what stands in Events and logs.
fn shown(path: &Path) -> String {
    foreign::line(&path.display().to_string(), 300)
}

/// What packs a file its first bytes tell to whoever unpacks it.
fn policy_name(file_name: &str) -> Option<&str> {
    if file_name.starts_with('.') {
        return None;
    }
    [".wasm", ".wasm.gz", ".wasm.zst"]
        .into_iter()
        .find_map(|suffix| file_name.strip_suffix(suffix))
        .filter(|name| !name.is_empty())
}

/// # Errors
/// A policy directory would not take a file of this name.
pub fn check_file_name(path: &Path) -> Result<(), FilesError> {
    let file_name = path.file_name().and_then(|name| name.to_str());
    let file_name = file_name.unwrap_or_default();
    let Some(name) = policy_name(file_name) else {
        let (stem, _) = file_name.split_once(".wasm").unwrap_or((file_name, ""));
        return Err(FilesError::Ending {
            path: shown(path),
            name: legal_name(stem),
        });
    };
    let legal = legal_name(name);
    match legal == name {
        true => Ok(()),
        false => Err(FilesError::Name {
            path: shown(path),
            name: legal,
        }),
    }
}

/// The name that a NodePool could give to this policy (cargo makes `my_policy.wasm` of a crate `my-policy`): itself, if it is legal.
pub fn legal_name(name: &str) -> String {
    let dashed = name.to_ascii_lowercase().replace(
        |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()),
        "-",
    );
    // As long as the CRD allows; all of it is ASCII now.
    let short = &dashed[..dashed.len().min(63)];
    match short.trim_matches('-') {
        "" => "policy".to_owned(),
        legal => legal.to_owned(),
    }
}

/// As it lies there. Packing makes none larger than a policy may be unpacked.
///
/// # Errors
/// It cannot be read, or is too big.
pub fn read_file(path: &Path) -> Result<Arc<[u8]>, FilesError> {
    let read = |problem: io::Error| FilesError::Read {
        path: shown(path),
        problem: problem.to_string(),
    };
    let file = open(path).map_err(read)?;
    let mut bytes = Vec::new();
    file.take(UNPACKED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() > UNPACKED_BYTES_MAX {
        return Err(LoadError::TooBig.into());
    }
    Ok(bytes.into())
}

/// A regular file. Opening a FIFO would wait for somebody who writes to it, and a device may have no end.
fn open(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

#[cfg(test)]
mod tests;
