//! Policy files: what lies in the policy directories now, read as one consistent whole.
//!
//! A ConfigMap mount is a folder of links into `..data`, which is itself a link that is swapped atomically. Reading through the links one by one can mix two
//! versions, so the folder behind `..data` is read and the link compared afterwards. Watching is the caller's; this only reads.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::engine::LoadError;

/// Unpacked bytes by policy name; a file that cannot be used is there with its reason.
pub type PolicyFiles = BTreeMap<Arc<str>, Result<Arc<[u8]>, FilesError>>;

/// Unpacked bytes at most; the engine's own limit.
const BYTES_MAX: u64 = super::engine::UNPACKED_BYTES_MAX as u64;
/// Other files are ignored beyond this many, with a warning: a policy directory is no file store.
const FILES_MAX: usize = 200;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FilesError {
    #[error("{path} cannot be read: {problem}")]
    Read { path: String, problem: String },
    #[error("{path} cannot be unpacked: {problem}")]
    Unpack { path: String, problem: String },
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Every `NAME.wasm`, `NAME.wasm.gz` and `NAME.wasm.zst` in the directories; a later directory wins. A directory that is not there is empty: an optional
/// ConfigMap may come later.
pub fn read_directories(directories: &[PathBuf]) -> PolicyFiles {
    let mut files = PolicyFiles::new();
    for directory in directories {
        match read_directory(directory) {
            Ok(found) => files.extend(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "policy directory cannot be read");
            }
        }
    }
    files
}

fn read_directory(directory: &Path) -> io::Result<PolicyFiles> {
    // The swap takes microseconds: three tries end on a whole version, or it is swapped in a loop and the next poll has another go.
    let mut tries = 0;
    loop {
        tries += 1;
        let data = directory.join("..data");
        let target = fs::canonicalize(&data).ok();
        let files = read_files(target.as_deref().unwrap_or(directory))?;
        if tries == 3 || target == fs::canonicalize(&data).ok() {
            return Ok(files);
        }
    }
}

fn read_files(directory: &Path) -> io::Result<PolicyFiles> {
    let mut paths = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let mut files = PolicyFiles::new();
    for path in paths.iter().take(FILES_MAX) {
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some((name, packing)) = policy_name(file_name) else {
            continue;
        };
        files.insert(name.into(), read_file(path, packing));
    }
    Ok(files)
}

#[derive(Clone, Copy)]
enum Packing {
    None,
    Gzip,
    Zstd,
}

fn policy_name(file_name: &str) -> Option<(&str, Packing)> {
    if file_name.starts_with('.') {
        return None;
    }
    [
        (".wasm", Packing::None),
        (".wasm.gz", Packing::Gzip),
        (".wasm.zst", Packing::Zstd),
    ]
    .into_iter()
    .find_map(|(suffix, packing)| Some((file_name.strip_suffix(suffix)?, packing)))
    .filter(|(name, _)| !name.is_empty())
}

fn read_file(path: &Path, packing: Packing) -> Result<Arc<[u8]>, FilesError> {
    let read = |problem: io::Error| FilesError::Read {
        path: path.display().to_string(),
        problem: problem.to_string(),
    };
    let unpack = |problem: String| FilesError::Unpack {
        path: path.display().to_string(),
        problem,
    };
    let file = fs::File::open(path).map_err(read)?;
    let bytes = match packing {
        Packing::None => limited(file).map_err(read)?,
        Packing::Gzip => limited(flate2::read::GzDecoder::new(file))
            .map_err(|error| unpack(error.to_string()))?,
        Packing::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(file)
                .map_err(|error| unpack(error.to_string()))?;
            limited(decoder).map_err(|error| unpack(error.to_string()))?
        }
    };
    if bytes.len() as u64 > BYTES_MAX {
        return Err(LoadError::TooBig { size: bytes.len() }.into());
    }
    Ok(bytes.into())
}

/// One byte more than allowed is enough to know that it is too big.
fn limited(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_configmap_mount_is_read_through_its_swap() {
        let mount = tempfile::tempdir().unwrap();
        let swap = |version: &str, text: &[u8]| {
            let folder = mount.path().join(version);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("mine.wasm"), text).unwrap();
            let link = mount.path().join("..data_tmp");
            symlink(version, &link).unwrap();
            fs::rename(&link, mount.path().join("..data")).unwrap();
        };
        swap("..1", b"one");
        symlink("..data/mine.wasm", mount.path().join("mine.wasm")).unwrap();
        let read = || {
            read_directories(&[mount.path().to_path_buf()])[&Arc::from("mine")]
                .clone()
                .unwrap()
                .to_vec()
        };
        assert_eq!(read(), b"one");
        swap("..2", b"two");
        assert_eq!(read(), b"two");
    }

    #[test]
    fn packed_files_are_unpacked_and_bombs_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let pack = |name: &str, bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(
                fs::File::create(folder.path().join(name)).unwrap(),
                flate2::Compression::fast(),
            );
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap();
        };
        pack("small.wasm.gz", b"hello");
        pack("bomb.wasm.gz", &vec![0; BYTES_MAX as usize * 4]);
        fs::write(folder.path().join("cut.wasm.zst"), b"\x28\xb5\x2f\xfd").unwrap();
        fs::write(folder.path().join("notes.txt"), b"ignored").unwrap();
        let files =
            read_directories(&[folder.path().to_path_buf(), folder.path().join("not-there")]);
        assert_eq!(files.len(), 3);
        assert_eq!(files[&Arc::from("small")].as_deref().unwrap(), b"hello");
        assert!(matches!(
            files[&Arc::from("bomb")],
            Err(FilesError::Load(LoadError::TooBig { .. }))
        ));
        assert!(
            files[&Arc::from("cut")]
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("cut.wasm.zst cannot be unpacked")
        );
    }
}
