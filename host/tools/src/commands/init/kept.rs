//! What a person has answered, in a file of the folder until that is complete: after ^C or an error the next run offers it
//! again. No secret is in it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Problem;
use super::files::write;

const ANSWERS: &str = "answers.json";

pub(super) struct Kept {
    pub(super) file: PathBuf,
    /// By the flags of the questions.
    answers: RefCell<BTreeMap<String, Vec<String>>>,
}

impl Kept {
    /// A file that is not there, or is none of ours, offers nothing.
    pub(super) fn read(folder: &Path) -> Self {
        let file = folder.join(ANSWERS);
        let read = fs::read(&file).ok();
        let answers = read.and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            file,
            answers: RefCell::new(answers.unwrap_or_default()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.borrow().is_empty()
    }

    pub(super) fn all(&self, flag: &str) -> Vec<String> {
        let answers = self.answers.borrow();
        answers.get(flag).cloned().unwrap_or_default()
    }

    pub(super) fn one(&self, flag: &str) -> Option<String> {
        self.all(flag).into_iter().next()
    }

    /// The Proxmox clusters with a name that were asked about, as flags name them: `--endpoint NAME=…`.
    pub(super) fn clusters(&self) -> Vec<String> {
        let answers = self.answers.borrow();
        let names = answers.keys().filter_map(|flag| {
            let name = flag.strip_prefix("--endpoint ")?.strip_suffix("=…")?;
            Some(name.to_owned())
        });
        names.collect()
    }

    /// Writes it at once: ^C leaves no time.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(super) fn keep(&self, flag: &str, answers: &[String]) -> Result<(), Problem> {
        let mut all = self.answers.borrow_mut();
        all.insert(flag.to_owned(), answers.to_vec());
        let failed = |error: &dyn std::fmt::Display| {
            Problem::other(format!("{}: {error}", self.file.display()))
        };
        let text = serde_json::to_string_pretty(&*all).map_err(|error| failed(&error))?;
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        write(&self.file, &text, 0o600).map_err(|error| failed(&error))
    }

    /// The folder is complete.
    pub(super) fn forget(&self) {
        // Whoever made the folder read-only loses nothing by it.
        let _ = fs::remove_file(&self.file);
        self.answers.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_next_run_reads_what_was_kept_until_it_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a/b");
        let kept = Kept::read(&folder);
        assert!(kept.is_empty() && !folder.exists());
        let two = ["pve1".to_owned(), "pve2".to_owned()];
        kept.keep("--pool", &["old".to_owned()]).unwrap();
        kept.keep("--pool", &["new".to_owned()]).unwrap();
        kept.keep("--server home=…", &two).unwrap();
        kept.keep("--endpoint home=…", &["https://pve1".to_owned()])
            .unwrap();
        let next = Kept::read(&folder);
        assert_eq!(next.one("--pool").as_deref(), Some("new"));
        assert_eq!(next.all("--server home=…"), two);
        assert_eq!(next.one("--template"), None);
        assert_eq!(next.clusters(), ["home"]);
        let mode = fs::metadata(&next.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        next.forget();
        assert!(next.is_empty() && Kept::read(&folder).is_empty());
        fs::write(&next.file, "no answers").unwrap();
        assert!(Kept::read(&folder).is_empty());
    }
}
