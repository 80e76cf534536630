//! The container image: an archive that `ctr images import`, `docker load` and `skopeo copy` take, made without a container engine.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::go::GoProgram;

const SOURCES: [(&str, &str); 5] = [
    ("go.mod", include_str!("../packaging/go.mod")),
    ("go.sum", include_str!("../packaging/go.sum")),
    ("main.go", include_str!("../packaging/main.go")),
    ("files.go", include_str!("../packaging/files.go")),
    ("image.go", include_str!("../packaging/image.go")),
];

/// What makes images and checks workflows: a Go program of this package.
#[derive(Clone, Debug)]
pub struct Packager {
    path: PathBuf,
}

/// Nothing where a test shall be skipped for lack of Go, which this says on stderr.
///
/// # Panics
///
/// When the build fails. Without Go with `CI=true`, where skipping would hide that nothing was tested.
pub fn require_packager() -> Option<Packager> {
    static PACKAGER: LazyLock<GoProgram> = LazyLock::new(|| {
        let called = "the program that makes images";
        GoProgram::new("packaging", called, &SOURCES, "-s -w".to_owned())
    });
    PACKAGER.require().map(|path| Packager { path })
}

/// An image that was made.
#[derive(Clone, Debug, Deserialize)]
pub struct Image {
    /// Repository and tag, as the chart names it.
    pub name: String,
    /// In the words of OCI: amd64 or arm64.
    pub architecture: String,
    /// Of the manifest: what a registry calls it.
    pub digest: String,
    /// The archive.
    #[serde(skip)]
    pub archive: PathBuf,
    /// Of the archive.
    #[serde(skip)]
    pub bytes: u64,
}

/// What the chart asks for when the values name no other image.
#[derive(Debug)]
struct Wanted {
    repository: String,
    version: String,
}

impl Packager {
    /// Where the executable is. It is linked statically.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the image of a program that was built for Linux and is linked statically, as `kproxide-VERSION-ARCHITECTURE.tar` in `folder`. `licenses` is the
    /// file with those of others. The same files give the same bytes.
    ///
    /// # Errors
    ///
    /// The program cannot be started from an image without a C library; a file cannot be read or written.
    pub fn image(&self, binary: &Path, licenses: &Path, folder: &Path) -> Result<Image, String> {
        let Wanted {
            repository,
            version,
        } = wanted();
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let unnamed = folder.join(format!("kproxide-{version}.tar"));
        let made = self.run(
            Command::new(&self.path)
                .arg("image")
                .arg(format!("-name={repository}:{version}"))
                .arg(format!("-version={version}"))
                .arg("-binary")
                .arg(binary)
                .arg("-licenses")
                .arg(licenses)
                .arg("-output")
                .arg(&unnamed),
        )?;
        let mut image: Image = serde_json::from_str(&made).map_err(|error| error.to_string())?;
        let name = format!("kproxide-{version}-{}.tar", image.architecture);
        image.archive = folder.join(name);
        let named = fs::rename(&unnamed, &image.archive).and_then(|()| image.archive.metadata());
        image.bytes = named.map_err(|error| error.to_string())?.len();
        Ok(image)
    }

    /// Writes what the image holds besides the program below `folder`.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn files(&self, folder: &Path) -> Result<(), String> {
        self.run(Command::new(&self.path).arg("files").arg(folder))
            .map(drop)
    }

    /// Reads workflows of GitHub as GitHub will.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn actionlint(&self, workflows: &[PathBuf]) -> Result<(), String> {
        // Without ShellCheck and Pyflakes, which one machine has and another has not.
        let flags = ["-no-color", "-shellcheck=", "-pyflakes="];
        let mut lint = Command::new(&self.path);
        self.run(lint.arg("actionlint").args(flags).args(workflows))
            .map(drop)
    }

    fn run(&self, command: &mut Command) -> Result<String, String> {
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        if output.status.success() {
            Ok(out)
        } else {
            Err(format!("{out}{err}"))
        }
    }
}

impl Image {
    /// Unpacks the archive into `folder`, and its layers into `root`, as a container engine does; gives back the image's configuration.
    ///
    /// # Panics
    ///
    /// When the archive is no image, or there is no `tar`.
    pub fn unpack(&self, folder: &Path, root: &Path) -> Value {
        let untar = |archive: &Path, into: &Path| {
            fs::create_dir_all(into).expect("a folder for what is unpacked");
            let mut tar = Command::new("tar");
            tar.arg("--extract").arg("--file").arg(archive);
            let status = tar.arg("--directory").arg(into).status();
            let status = status.expect("tar starts");
            assert!(status.success(), "{}: {status}", archive.display());
        };
        let read = |path: &str| -> Value {
            let text = fs::read_to_string(folder.join(path)).expect("a file of the archive");
            serde_json::from_str(&text).expect("JSON")
        };
        untar(&self.archive, folder);
        let list = read("manifest.json");
        let layers = list[0]["Layers"].as_array().expect("layers");
        for layer in layers {
            untar(&folder.join(layer.as_str().expect("a path")), root);
        }
        read(list[0]["Config"].as_str().expect("a path"))
    }
}

/// How to use it, for the person who made it.
impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            architecture,
            digest,
            archive,
            bytes,
        } = self;
        let archive = archive.display();
        let mb = *bytes as f64 / 1e6;
        writeln!(f, "{archive} ({mb:.1} MB)")?;
        writeln!(f, "  {name}, linux/{architecture}, {digest}")?;
        writeln!(f, "On each Node that may run kproxide, one of:")?;
        writeln!(f, "  ctr --namespace k8s.io images import FILE")?;
        writeln!(f, "  k3s ctr images import FILE")?;
        write!(
            f,
            "and set image.pullPolicy to Never in the chart's values. Or push it to a registry of yours:\n  \
             skopeo copy oci-archive:FILE docker://registry.example/kproxide:TAG"
        )
    }
}

/// # Panics
///
/// When the chart does not say it, which its tests would show.
fn wanted() -> Wanted {
    let read = |file: &str| -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../charts/kproxide")
            .join(file);
        let text = fs::read_to_string(path).expect("the chart can be read");
        serde_saphyr::from_str(&text).expect("the chart is YAML")
    };
    let (chart, values) = (read("Chart.yaml"), read("values.yaml"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    assert_eq!(values["image"]["tag"], "", "the tag is the appVersion");
    Wanted {
        repository: text(&values["image"]["repository"]),
        version: text(&chart["appVersion"]),
    }
}
