//! The bytes of a policy file: known by their digest, and read again when they are needed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kproxide_planner::ids::Digest;

use super::engine::digest;
use super::files::read_file;

/// What lay in a file when it was looked at. Cheap to clone: of a file on disk the bytes are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    digest: Digest,
    size: usize,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Memory(Arc<[u8]>),
    /// Its place in the mount, where a ConfigMap's next version comes to lie too: the digest tells them apart.
    Disk(PathBuf),
}

impl From<Arc<[u8]>> for Content {
    /// Which lie in no file.
    fn from(bytes: Arc<[u8]>) -> Self {
        Self {
            digest: digest(&bytes),
            size: bytes.len(),
            place: Place::Memory(bytes),
        }
    }
}

impl Content {
    /// These bytes were just read there.
    pub(super) fn on_disk(path: PathBuf, bytes: &[u8]) -> Self {
        Self {
            digest: digest(bytes),
            size: bytes.len(),
            place: Place::Disk(path),
        }
    }

    /// SHA-256 of the file as it lies.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn is_on_disk(&self) -> bool {
        matches!(self.place, Place::Disk(_))
    }

    /// The same bytes as then.
    ///
    /// # Errors
    /// The file is gone, or another lies in its place.
    pub async fn read(&self) -> io::Result<Arc<[u8]>> {
        if let Place::Memory(bytes) = &self.place {
            return Ok(bytes.clone());
        }
        let content = self.clone();
        tokio::task::spawn_blocking(move || content.read_here()).await?
    }

    /// As [`Content::read`], on the caller's thread.
    ///
    /// # Errors
    /// As for [`Content::read`].
    pub fn read_here(&self) -> io::Result<Arc<[u8]>> {
        let path = match &self.place {
            Place::Memory(bytes) => return Ok(bytes.clone()),
            Place::Disk(path) => path,
        };
        let bytes = read_file(path).map_err(io::Error::other)?;
        match digest(&bytes) == self.digest {
            true => Ok(bytes),
            false => Err(io::Error::other(
                "another file lies in its place since kproxide looked at it",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_again_and_another_in_its_place_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["a.wasm", "b.wasm"].map(|name| folder.path().join(name));
        std::fs::write(&path, b"one").unwrap();
        std::fs::write(&other, b"two").unwrap();
        let content = Content::on_disk(path.clone(), b"one");
        assert_eq!(&*content.read().await.unwrap(), b"one");
        assert_eq!(content.size(), 3);
        std::fs::rename(&other, &path).unwrap();
        let said = content.read().await.unwrap_err().to_string();
        assert!(said.starts_with("another file lies in its place"), "{said}");
        std::fs::remove_file(&path).unwrap();
        let said = content.read().await.unwrap_err().to_string();
        assert!(said.contains("cannot be read"), "{said}");
    }
}
