//! Policies that end the process: by a fault of the engine, or of what it gives to its guests, against which no limit of an instance helps.
//!
//! While bytes from a file are compiled, tested or asked, a mark with their digest lies in a folder that outlives the process. A process that finds one when
//! it starts knows what the one before it was doing when it died. After the third time the bytes are refused as any other bad file is.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kproxide_planner::ids::Digest;

/// Fewer crashes may be chance: the machine's memory ran out, or a user killed the process at that moment.
const CRASHES_MAX: u32 = 3;

/// The process that uses the folder holds this lock. Marks of a process that still runs are no crashes.
const LOCK: &str = "lock";
const CALLING: &str = "calling";
const DIED: &str = "died";

/// What earlier processes died of. Cheap to clone; the default remembers nothing.
#[derive(Clone, Debug, Default)]
pub struct CrashMarks(Option<Arc<Remembered>>);

#[derive(Debug)]
struct Remembered {
    folder: PathBuf,
    counts: BTreeMap<Digest, u32>,
    /// Open as long as the folder is used; the kernel frees it however the process ends.
    _lock: File,
}

impl CrashMarks {
    /// Counts what the process before this one left behind. A folder that cannot be used, or that another process uses, is told of, and nothing is
    /// remembered.
    pub fn open(folder: &Path) -> Self {
        match lock(folder).and_then(|lock| Ok((lock, count(folder)?))) {
            Ok((lock, counts)) => Self(Some(Arc::new(Remembered {
                folder: folder.to_owned(),
                counts,
                _lock: lock,
            }))),
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "--state-dir cannot be used: a policy that ends the process would be called again and again");
                Self::default()
            }
        }
    }

    /// Why these bytes are not to be used, if they have ended the process too often.
    pub(super) fn verdict(&self, digest: &Digest) -> Option<String> {
        let Self(remembered) = self;
        let count = *remembered.as_ref()?.counts.get(digest)?;
        (count >= CRASHES_MAX).then(|| {
            format!(
                "kproxide died {count} times while it compiled, tested or called this policy. Replace the file, and report it if the SDK made it"
            )
        })
    }

    /// To be called before anything is done with the bytes.
    pub(super) fn begin(&self, digest: &Digest) {
        self.change(digest, |mark| fs::write(mark, ""));
    }

    /// The process has survived it.
    pub(super) fn end(&self, digest: &Digest) {
        self.change(digest, |mark| match fs::remove_file(mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        });
    }

    fn change(&self, digest: &Digest, change: impl FnOnce(PathBuf) -> io::Result<()>) {
        if let Self(Some(remembered)) = self
            && let Err(error) = change(remembered.folder.join(format!("{digest}.{CALLING}")))
        {
            tracing::debug!(%error, "the mark of a policy's call");
        }
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let lock = File::create(folder.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another process uses it: give each its own",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// CrashMarks by digest, those of the last process included.
fn count(folder: &Path) -> io::Result<BTreeMap<Digest, u32>> {
    let mut counts: BTreeMap<Digest, u32> = BTreeMap::new();
    let mut marks = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let (Some(digest), Some(kind)) = (
            path.file_stem().and_then(|stem| stem.to_str()),
            path.extension().and_then(|kind| kind.to_str()),
        ) else {
            continue;
        };
        let digest: Digest = digest.into();
        match kind {
            CALLING => {
                *counts.entry(digest.clone()).or_default() += 1;
                marks.push((digest, path));
            }
            DIED => {
                let before = fs::read_to_string(&path)?;
                *counts.entry(digest).or_default() += before.trim().parse().unwrap_or(0);
            }
            _ => {}
        }
    }
    for (digest, mark) in marks {
        let count = counts.get(&digest).copied().unwrap_or(1);
        tracing::error!(%digest, count, "the process before this one died while it was busy with this policy");
        fs::write(folder.join(format!("{digest}.{DIED}")), count.to_string())?;
        fs::remove_file(mark)?;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f83_what_a_process_was_busy_with_when_it_died_is_counted_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let (bad, good) = (Digest::from("bad"), Digest::from("good"));
        for _ in 0..CRASHES_MAX {
            let process = CrashMarks::open(&state);
            assert_eq!(process.verdict(&bad), None);
            process.begin(&good);
            process.end(&good);
            process.begin(&bad);
        }
        for _ in 0..2 {
            let process = CrashMarks::open(&state);
            let verdict = process.verdict(&bad).unwrap();
            assert!(verdict.contains("died 3 times"), "{verdict}");
            assert_eq!(process.verdict(&good), None);
        }
    }

    #[test]
    fn what_another_process_is_busy_with_is_not_its_death() {
        let state = tempfile::tempdir().unwrap();
        let busy = Digest::from("busy");
        let one = CrashMarks::open(state.path());
        for _ in 0..CRASHES_MAX {
            one.begin(&busy);
            assert_eq!(CrashMarks::open(state.path()).verdict(&busy), None);
            one.end(&busy);
        }
        drop(one);
        assert_eq!(CrashMarks::open(state.path()).verdict(&busy), None);
    }

    #[test]
    fn a_folder_that_cannot_be_used_stops_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for crash_marks in [CrashMarks::open(file.path()), CrashMarks::default()] {
            let digest = Digest::from("any");
            crash_marks.begin(&digest);
            crash_marks.end(&digest);
            assert_eq!(crash_marks.verdict(&digest), None);
        }
    }
}
