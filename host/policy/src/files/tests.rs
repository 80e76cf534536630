use std::os::unix::fs::symlink;

use super::*;

fn read(folder: &Path) -> PolicyFiles {
    Directories::new(&[folder.to_path_buf()]).read(&BTreeSet::new())
}

/// What the file of the last directory holds.
fn content(files: &PolicyFiles, name: &str) -> Result<Vec<u8>, String> {
    let content = files[name][0].content.clone();
    content
        .map(|content| content.read_here().unwrap().to_vec())
        .map_err(|error| error.to_string())
}

fn names(files: &PolicyFiles) -> Vec<&str> {
    files.keys().map(|name| &**name).collect()
}

#[test]
fn f92_a_configmap_mount_is_read_through_its_swap() {
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
    let mine = || content(&read(mount.path()), "mine").unwrap();
    assert_eq!(mine(), b"one");
    swap("..2", b"two");
    assert_eq!(mine(), b"two");
}

#[test]
fn a_name_that_no_pool_can_give_is_refused_with_one_that_it_can() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("my_Policy.wasm"), b"").unwrap();
    let said = content(&read(folder.path()), "my-policy").unwrap_err();
    assert!(said.ends_with("rename it my-policy.wasm"), "{said}");
    fs::write(folder.path().join("my-policy.wasm"), b"good").unwrap();
    let files = read(folder.path());
    assert_eq!(content(&files, "my-policy").unwrap(), b"good");
    let said = content(&files, "my_Policy").unwrap_err();
    assert!(said.ends_with("rename it my-policy.wasm"), "{said}");
    for (name, legal) in [("spread", "spread"), ("_x_", "x"), ("é", "policy")] {
        assert_eq!(legal_name(name), legal);
    }
    assert_eq!(legal_name(&"a".repeat(70)).len(), 63);
}

#[test]
fn f94_packed_files_are_read_as_they_lie_and_other_files_are_none_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "gzipped.wasm.gz",
        "plain.wasm",
        "zstd.wasm.zst",
        "notes.txt",
        ".hidden.wasm",
        ".wasm",
        "wasm",
        "compiled.cwasm",
    ] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let files = read(folder.path());
    assert_eq!(names(&files), ["gzipped", "plain", "zstd"]);
    for name in names(&files) {
        assert!(content(&files, name).unwrap().starts_with(name.as_bytes()));
    }
}

#[test]
fn f93_a_file_that_cannot_be_used_is_there_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("big.wasm"), vec![0; UNPACKED_BYTES_MAX + 1]).unwrap();
    fs::create_dir(path("folder.wasm")).unwrap();
    fs::write(path("twice.wasm"), b"a").unwrap();
    fs::write(path("twice.wasm.gz"), b"b").unwrap();

    let at = folder.path().display().to_string();
    let files = read(folder.path());
    let said: Vec<String> = names(&files)
        .into_iter()
        .map(|name| content(&files, name).unwrap_err().replace(&at, "DIR"))
        .collect();
    assert_eq!(
        said,
        [
            "it has more than 33554432 bytes unpacked, which is the most that is loaded",
            "DIR/folder.wasm cannot be read: it is no regular file",
            "DIR/twice.wasm and DIR/twice.wasm.gz are both of this policy: remove one",
        ]
    );
}

#[test]
fn a_directory_is_no_file_store() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..=FILES_MAX {
        fs::write(folder.path().join(format!("p{n:03}.wasm")), b"x").unwrap();
    }
    let files = read(folder.path());
    assert_eq!(
        names(&files)
            .into_iter()
            .filter(|it| content(&files, it).is_ok())
            .count(),
        FILES_MAX
    );
    let error = content(&files, "p100")
        .unwrap_err()
        .replace(&folder.path().display().to_string(), "DIR");
    assert_eq!(
        error,
        "DIR/p100.wasm is not read: the policies of one directory are at most 100, with 33554432 bytes together, and those that NodePools \
         name come first: remove files that no NodePool names, or mount this one in a directory of its own"
    );
}

#[test]
fn the_later_directory_wins_and_one_that_is_not_there_is_empty() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(first.path().join("a.wasm"), b"first").unwrap();
    fs::write(first.path().join("b.wasm"), b"first").unwrap();
    fs::write(second.path().join("b.wasm"), b"second").unwrap();
    let paths = [first.path(), second.path(), Path::new("/not/there")].map(Path::to_path_buf);
    let files = Directories::new(&paths).read(&BTreeSet::new());
    let texts = files
        .values()
        .flatten()
        .map(|file| file.content.as_ref().unwrap().read_here().unwrap());
    assert_eq!(
        (
            names(&files),
            texts.map(|it| it.to_vec()).collect::<Vec<_>>()
        ),
        (
            vec!["a", "b"],
            vec![b"first".to_vec(), b"second".to_vec(), b"first".to_vec()]
        )
    );
}

/// Reading a file as a directory fails for everybody; taking permissions away would not stop root.
#[test]
fn f92_a_directory_that_cannot_be_read_is_as_it_was_and_one_that_is_gone_is_empty() {
    let parent = tempfile::tempdir().unwrap();
    let (path, aside) = (parent.path().join("policies"), parent.path().join("aside"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a.wasm"), b"a").unwrap();
    let mut directories = Directories::new(std::slice::from_ref(&path));
    let before = directories.read(&BTreeSet::new());
    assert_eq!(names(&before), ["a"]);

    fs::rename(&path, &aside).unwrap();
    fs::write(&path, b"not a directory").unwrap();
    assert_eq!(directories.read(&BTreeSet::new()), before);

    fs::remove_file(&path).unwrap();
    assert_eq!(directories.read(&BTreeSet::new()), PolicyFiles::new());

    fs::rename(&aside, &path).unwrap();
    assert_eq!(directories.read(&BTreeSet::new()), before);
}

/// Opening one waited for a writer, and planning with it.
#[test]
fn w14_a_fifo_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("pipe.wasm");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero.wasm")).unwrap();
    std::os::unix::fs::symlink("other.txt", folder.path().join("linked.wasm")).unwrap();
    fs::write(folder.path().join("other.txt"), b"bytes").unwrap();
    let files = read(folder.path());
    for name in ["pipe", "zero"] {
        let said = content(&files, name).unwrap_err();
        assert!(
            said.ends_with("cannot be read: it is no regular file"),
            "{said}"
        );
    }
    assert_eq!(content(&files, "linked").unwrap(), b"bytes");
}

#[test]
fn w15_the_name_of_a_file_can_be_shown() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "\u{1b}[31mred.wasm",
        "\u{202e}turned.wasm",
        "hid\u{200b}den.wasm",
    ];
    for name in names {
        fs::write(folder.path().join(name), b"").unwrap();
    }
    for (name, files) in read(folder.path()) {
        let said = files[0].content.clone().unwrap_err().to_string();
        let texts = [&*name, &*files[0].path, &said];
        assert!(
            !texts.concat().contains(['\u{1b}', '\u{202e}', '\u{200b}']),
            "{texts:?}"
        );
    }
}

#[test]
fn a_file_name_is_refused_as_a_directory_would_refuse_it() {
    let said = |path: &str| {
        check_file_name(Path::new(path))
            .err()
            .map(|it| it.to_string())
    };
    for path in ["mine.wasm", "a/b-2.wasm.gz", "../x.wasm.zst"] {
        assert_eq!(said(path), None, "{path}");
    }
    for (path, fix) in [
        ("a/My_Policy.wasm", "rename it my-policy.wasm"),
        ("a/-x.wasm.gz", "rename it x.wasm"),
        ("a/mine", "rename it mine.wasm"),
        ("a/mine.wasm.bz2", "rename it mine.wasm"),
        ("a/.mine.wasm", "rename it mine.wasm"),
        ("a/.wasm", "rename it policy.wasm"),
    ] {
        let said = said(path).unwrap();
        assert!(said.starts_with(path) && said.ends_with(fix), "{said}");
    }
}

#[test]
fn w17_files_that_a_pool_names_come_first_and_then_those_that_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let large = |name: &str| {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        file.set_len(20 << 20).unwrap();
    };
    let mut directories = Directories::new(&[folder.path().to_path_buf()]);
    let mut read_now = |named: &[&str]| -> Vec<String> {
        let named = named.iter().map(|name| Arc::from(*name)).collect();
        let files = directories.read(&named);
        let read = files.into_iter().filter(|(_, it)| it[0].content.is_ok());
        read.map(|(name, _)| name.to_string()).collect()
    };
    large("mine.wasm");
    assert_eq!(read_now(&[]), ["mine"]);
    // It keeps its place, whatever comes.
    large("aaa.wasm");
    assert_eq!(read_now(&[]), ["mine"]);
    assert_eq!(read_now(&["other"]), ["mine"]);
    assert_eq!(read_now(&["aaa"]), ["aaa"]);
    assert_eq!(read_now(&["aaa", "mine"]), ["aaa"]);
    assert_eq!(read_now(&["mine"]), ["mine"]);
}
