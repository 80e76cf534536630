//! What a release consists of, made from a stand-in for kproxide: the tool that makes the image is linked statically too. `e2e/image.rs` starts the real one.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod containerfile;
mod forms;
mod workflows;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use kproxide_testkit::licenses::Shipped;
use kproxide_testkit::{Image, Packager, require_packager};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

#[test]
fn the_same_program_gives_the_same_archive_and_another_one_another() {
    let Some(packager) = require_packager() else {
        return;
    };
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let other = folders[2].path().join("other");
    let mut program = fs::read(packager.path()).unwrap();
    program.push(0);
    fs::write(&other, program).unwrap();
    let [one, again] = [&folders[0], &folders[1]]
        .map(|folder| stand_in(&packager, packager.path(), folder.path()).unwrap());
    let other = stand_in(&packager, &other, folders[2].path()).unwrap();

    assert_eq!(one.digest, again.digest);
    assert!(fs::read(&one.archive).unwrap() == fs::read(&again.archive).unwrap());
    assert_ne!(one.digest, other.digest);
    assert!(one.archive.ends_with("kproxide-0.1.0-amd64.tar"), "{one:?}");
}

#[test]
fn the_archive_is_an_image_to_oci_and_to_docker_by_the_charts_name() {
    let Some(packager) = require_packager() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let image = stand_in(&packager, packager.path(), folder.path()).unwrap();
    let unpacked = folder.path().join("unpacked");
    let config = image.unpack(&unpacked, &folder.path().join("root"));
    let read = |path: &str| fs::read(unpacked.join(path)).unwrap();
    let parsed = |path: &str| -> Value { serde_json::from_slice(&read(path)).unwrap() };

    // Every blob is what its name says.
    let mut blobs = BTreeMap::new();
    for blob in fs::read_dir(unpacked.join("blobs/sha256")).unwrap() {
        let name = blob.unwrap().file_name().into_string().unwrap();
        let content = read(&format!("blobs/sha256/{name}"));
        assert_eq!(sha256(&content), format!("sha256:{name}"));
        blobs.insert(format!("sha256:{name}"), content);
    }
    assert_eq!(blobs.len(), 3, "manifest, configuration and one layer");
    let blob = |descriptor: &Value| {
        let content = &blobs[descriptor["digest"].as_str().unwrap()];
        assert_eq!(descriptor["size"], content.len());
        content
    };

    assert_eq!(
        parsed("oci-layout"),
        json!({ "imageLayoutVersion": "1.0.0" })
    );
    let index = parsed("index.json");
    let [listed] = index["manifests"].as_array().unwrap().as_slice() else {
        panic!("{index}");
    };
    assert_eq!(listed["digest"], *image.digest);
    assert_eq!(
        listed["platform"],
        json!({ "architecture": "amd64", "os": "linux" })
    );
    let names = json!({
        "io.containerd.image.name": "ghcr.io/kproxide/kproxide:0.1.0",
        "org.opencontainers.image.ref.name": "0.1.0",
    });
    assert_eq!(listed["annotations"], names);
    let manifest: Value = serde_json::from_slice(blob(listed)).unwrap();
    let by_oci: Value = serde_json::from_slice(blob(&manifest["config"])).unwrap();
    assert_eq!(by_oci, config);
    let layer = &manifest["layers"][0];
    blob(layer);

    let path = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        digest.replace("sha256:", "blobs/sha256/")
    };
    let by_docker = json!([{
        "Config": path(&manifest["config"]),
        "RepoTags": ["ghcr.io/kproxide/kproxide:0.1.0"],
        "Layers": [path(layer)],
    }]);
    assert_eq!(parsed("manifest.json"), by_docker);
    // What engines check after they have unpacked a layer.
    let mut gunzip = Command::new("gzip");
    let plain = gunzip
        .args(["--decompress", "--stdout"])
        .stdin(fs::File::open(unpacked.join(path(layer))).unwrap());
    let plain = plain.output().unwrap().stdout;
    assert_eq!(config["rootfs"]["diff_ids"], json!([sha256(&plain)]));

    let chart = fs::read_to_string(repository().join("charts/kproxide/values.yaml")).unwrap();
    assert!(
        chart.contains("repository: ghcr.io/kproxide/kproxide\n"),
        "the chart asks for it"
    );
}

#[test]
fn the_image_holds_the_program_licences_the_authorities_and_its_user_and_nothing_else() {
    let Some(packager) = require_packager() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let licenses = folder.path().join("text");
    let text = Shipped::Image.third_party("x86_64").unwrap();
    fs::write(&licenses, &text).unwrap();
    let image = packager.image(packager.path(), &licenses, folder.path());
    let image = image.unwrap();
    let root = folder.path().join("root");
    let config = image.unpack(&folder.path().join("unpacked"), &root);

    let layer = config["rootfs"]["diff_ids"].as_array().unwrap().len();
    assert_eq!(layer, 1);
    let entries = listed(&folder.path().join("unpacked"));
    let expected = [
        "drwxr-xr-x 0/0 etc/",
        "-rw-r--r-- 0/0 etc/passwd",
        "drwxr-xr-x 0/0 etc/ssl/",
        "drwxr-xr-x 0/0 etc/ssl/certs/",
        "-rw-r--r-- 0/0 etc/ssl/certs/ca-certificates.crt",
        "-rwxr-xr-x 0/0 kproxide",
        "drwxr-xr-x 0/0 licenses/",
        "-rw-r--r-- 0/0 licenses/THIRD-PARTY.txt",
    ];
    assert_eq!(entries, expected);
    assert!(fs::read(root.join("kproxide")).unwrap() == fs::read(packager.path()).unwrap());
    let licenses = root.join("licenses/THIRD-PARTY.txt");
    assert!(fs::read_to_string(licenses).unwrap() == text);
    assert!(text.contains("\nwasmtime 48."), "{text}");
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    assert_eq!(users, "kproxide:x:65532:65532:kproxide:/:/sbin/nologin\n");

    let bundle = fs::read(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    let authorities: Vec<_> = CertificateDer::pem_slice_iter(&bundle)
        .collect::<Result<_, _>>()
        .unwrap();
    let (trusted, refused) = RootCertStore::empty().add_parsable_certificates(authorities);
    assert!(
        trusted > 100 && refused == 0,
        "{trusted} authorities, {refused} refused"
    );

    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], json!(["/kproxide"]));
    let labels = config["config"]["Labels"].as_object().unwrap();
    assert_eq!(labels["org.opencontainers.image.version"], "0.1.0");
    let source = labels["org.opencontainers.image.source"].as_str().unwrap();
    let chart = fs::read_to_string(repository().join("charts/kproxide/Chart.yaml")).unwrap();
    assert!(chart.contains(&format!("url: {source}\n")), "{source}");
    assert_eq!(labels["org.opencontainers.image.revision"], commit());
    assert!(labels.len() >= 6, "{labels:?}");
}

/// What the sources are of, if somebody has said it to this process.
fn commit() -> String {
    std::env::var("KPROXIDE_COMMIT").unwrap_or_default()
}

/// The variable is the whole process's. So the tests that compare labels run again in one that has it.
#[test]
fn the_image_says_of_which_commit_it_is() {
    let mut again = Command::new(std::env::current_exe().unwrap());
    let tests = [
        "the_image_holds_the_program_licences_the_authorities_and_its_user_and_nothing_else",
        "containerfile::the_containerfile_and_cargo_image_make_the_same_image",
    ];
    let output = again
        .args(tests)
        .arg("--exact")
        .env("KPROXIDE_COMMIT", "0123abc")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("2 passed"),
        "{said}"
    );
}

#[test]
fn a_program_that_the_image_could_not_start_is_refused_with_the_way_out() {
    let Some(packager) = require_packager() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // Cargo links tests dynamically.
    let dynamic = std::env::current_exe().unwrap();
    let refused = stand_in(&packager, &dynamic, folder.path()).unwrap_err();
    assert!(
        refused.contains("-C target-feature=+crt-static"),
        "{refused}"
    );

    let program = folder.path().join("program");
    let image = |machine: u16, alignment: u64| {
        fs::write(&program, elf(machine, alignment)).unwrap();
        stand_in(&packager, &program, folder.path())
    };
    const X86_64: u16 = 62;
    const AARCH64: u16 = 183;
    const RISCV: u16 = 243;
    assert_eq!(image(X86_64, 0x1000).unwrap().architecture, "amd64");
    let arm = image(AARCH64, 0x4000).unwrap();
    assert!(arm.archive.ends_with("kproxide-0.1.0-arm64.tar"), "{arm:?}");
    let refused = image(AARCH64, 0x1000).unwrap_err();
    assert!(refused.contains("pages of 16384"), "{refused}");
    let refused = image(RISCV, 0x4000).unwrap_err();
    assert!(refused.contains("x86-64 and arm64"), "{refused}");

    fs::write(&program, "#!/bin/sh\n").unwrap();
    let refused = stand_in(&packager, &program, folder.path()).unwrap_err();
    assert!(refused.contains("program"), "{refused}");
}

/// The image of a stand-in for kproxide, and with one for the licences.
fn stand_in(packager: &Packager, program: &Path, folder: &Path) -> Result<Image, String> {
    packager.image(program, &repository().join("LICENSE"), folder)
}

/// A program of one segment and nothing in it.
fn elf(machine: u16, alignment: u64) -> Vec<u8> {
    const HEADER: u16 = 64;
    const SEGMENT: u16 = 56;
    const EXECUTABLE: u16 = 2;
    const LOAD: u32 = 1;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(EXECUTABLE.to_le_bytes());
    file.extend(machine.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    // Where it begins, where the segments are listed, and that there are no sections.
    for field in [0, u64::from(HEADER), 0] {
        file.extend(field.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for field in [HEADER, SEGMENT, 1, 0, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    file.extend(LOAD.to_le_bytes());
    file.extend(4u32.to_le_bytes());
    for field in [0, 0, 0, 0, 0, alignment] {
        file.extend(u64::to_le_bytes(field));
    }
    file
}

/// The entries of the only layer, as `MODE OWNER PATH`.
fn listed(unpacked: &Path) -> Vec<String> {
    let list = fs::read(unpacked.join("manifest.json")).unwrap();
    let list: Value = serde_json::from_slice(&list).unwrap();
    let layer = unpacked.join(list[0]["Layers"][0].as_str().unwrap());
    let mut tar = Command::new("tar");
    tar.args(["--list", "--verbose", "--numeric-owner", "--file"]);
    let output = tar.arg(layer).output().unwrap();
    assert!(output.status.success());
    let entries = String::from_utf8(output.stdout).unwrap();
    let entry = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        format!("{} {} {}", fields[0], fields[1], fields[5])
    };
    entries.lines().map(entry).collect()
}

fn sha256(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
