//! The licences of what is shipped: which libraries are linked, asked of Cargo, and `THIRD-PARTY.txt`, which has their texts.

use std::sync::LazyLock;

use crate::cargo::ask_cargo;
use crate::release::KPROXIDE;

mod library;
mod text;

pub use library::{Library, is_license, linked};
pub use text::third_party;

use library::packages;

/// What people get of kproxide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// The container image: kproxide without the demo, its built-in policies, and the certificates of public authorities.
    Image,
    /// The archive of a release: the whole program, with the policies that misbehave on purpose.
    Archive,
}

/// What policies are built for.
const POLICIES: &str = "wasm32-unknown-unknown";

/// The only Go module of which the image holds something: the certificates. No program in it is written in Go.
const CERTIFICATES: &str = "golang.org/x/crypto/x509roots/fallback";

impl Shipped {
    /// What the text is about.
    fn title(self) -> &'static str {
        match self {
            Self::Image => "the container image",
            Self::Archive => "the program of the release",
        }
    }

    fn program(self) -> &'static [&'static str] {
        match self {
            Self::Image => &KPROXIDE,
            Self::Archive => &["--package=kproxide"],
        }
    }

    /// The packages of its policies, which Cargo links for themselves.
    fn policies(self, metadata: &str) -> Result<Vec<String>, String> {
        let ours = packages(metadata)?.into_iter().filter(|one| one.is_ours());
        let is_of_it = |name: &String| {
            let policy = name.strip_prefix("kproxide-policy-");
            policy.is_some_and(|policy| {
                policy != "sdk" && (self == Self::Archive || !policy.starts_with("hostile"))
            })
        };
        Ok(ours.map(|one| one.name).filter(is_of_it).collect())
    }

    /// The policies that are built into it, by the names of their packages.
    ///
    /// # Errors
    ///
    /// What Cargo says of a failure.
    pub fn builtins(self) -> Result<Vec<String>, String> {
        self.policies(&ask_cargo(&[
            "metadata",
            "--no-deps",
            "--format-version=1",
        ])?)
    }

    /// Everything that it is made of and that others wrote. `architecture` is in the words of Rust: `x86_64` or `aarch64`.
    ///
    /// # Errors
    ///
    /// What Cargo says of a failure.
    pub fn libraries(self, architecture: &str) -> Result<Vec<Library>, String> {
        // Asked once, for both architectures: what one of them does not link, its tree lacks.
        static METADATA: LazyLock<Result<String, String>> = LazyLock::new(|| {
            let platforms = [
                "x86_64-unknown-linux-gnu",
                "aarch64-unknown-linux-gnu",
                POLICIES,
            ];
            let platforms = platforms.map(|platform| format!("--filter-platform={platform}"));
            let mut asked = vec!["metadata", "--format-version=1"];
            asked.extend(platforms.iter().map(String::as_str));
            ask_cargo(&asked)
        });
        let metadata = METADATA.as_ref().map_err(Clone::clone)?;
        let packages: Vec<String> = self
            .policies(metadata)?
            .into_iter()
            .map(|name| format!("--package={name}"))
            .collect();
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        let trees = [
            tree(self.program(), &format!("{architecture}-unknown-linux-gnu"))?,
            tree(&packages, POLICIES)?,
        ];
        let mut libraries = linked(metadata, &trees.each_ref().map(String::as_str))?;
        libraries.extend(self.beside_crates());
        Ok(libraries)
    }

    /// What stands beside it as `licenses/THIRD-PARTY.txt`.
    ///
    /// # Errors
    ///
    /// What Cargo says of a failure, or a library without a licence.
    pub fn third_party(self, architecture: &str) -> Result<String, String> {
        third_party(self, architecture, &self.libraries(architecture)?)
    }

    /// What is linked or copied and is no crate. None of it has a file that every builder finds at the same place, so each gets the standard text.
    fn beside_crates(self) -> Vec<Library> {
        let toolchain = include_str!("../../../rust-toolchain.toml");
        let rust = toolchain.split('"').nth(1).unwrap_or_default();
        let module = include_str!("../../packaging/go.mod");
        let module = module.split_once(CERTIFICATES).map_or("", |(_, rest)| rest);
        let certificates = module.split_whitespace().next().unwrap_or_default();
        let all = [
            (
                "Rust's standard library",
                rust,
                "(MIT OR Apache-2.0) AND Unicode-3.0",
                "The Rust Project Developers, and for its tables Unicode, Inc.",
            ),
            // It is that of the computer that links it.
            (
                "GNU C Library",
                "",
                "LGPL-2.1-or-later",
                "Free Software Foundation, Inc., and others",
            ),
            (
                CERTIFICATES,
                certificates,
                "BSD-3-Clause",
                "2009 The Go Authors; the list of authorities is Mozilla's",
            ),
        ];
        let has = |name: &str| self == Self::Image || name != CERTIFICATES;
        all.into_iter()
            .filter(|(name, ..)| has(name))
            .map(|(name, version, license, author)| Library {
                name: name.to_owned(),
                version: version.to_owned(),
                license: Some(license.to_owned()),
                authors: vec![author.to_owned()],
                ..Library::default()
            })
            .collect()
    }
}

/// Who needs what, as Cargo will link it: its metadata have the features of the whole workspace, its tree those of these packages alone. Macros are in it:
/// what they write is their authors' too.
fn tree(packages: &[&str], target: &str) -> Result<String, String> {
    let target = format!("--target={target}");
    let asked: [&[&str]; 3] = [
        &["tree", "--edges=normal", "--prefix=depth", "--format={p}"],
        &[&target],
        packages,
    ];
    ask_cargo(&asked.concat())
}
