use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

/// Letters of four scripts, all that means something to `printf` or to a quote, an emoji, digits behind a byte that is escaped, and a byte that is no UTF-8.
const TEXT: &[u8] = b"caf\xc3\xa9 \xce\xb1\xce\xb2 \xd0\x96\xd0\xb4 \xe6\xbc\xa2\xe5\xad\x97 \xe2\x9c\x93 \xf0\x9f\x90\xa7 \xc3\xa9123 \
    100% %s %d %% \\n \\\\ \\101 \\c 'single' \"double\" $HOME `x` \xff\x80 end";

/// Shells that may be a guest's /bin/sh: those that this machine has.
fn shells() -> Vec<Vec<&'static str>> {
    let all: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];
    let (there, missing): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|shell| output(shell, "exit 0").is_some());
    // Past the test harness, which shows nothing of a test that passes.
    for shell in missing {
        let _ = writeln!(
            std::io::stderr(),
            "{} is not installed: not tried",
            shell[0]
        );
    }
    assert!(!there.is_empty(), "no shell is installed");
    there.into_iter().map(<[_]>::to_vec).collect()
}

/// Exit code and output of a shell that gets a script as its standard input, where /bin/sh is that same shell.
fn output(shell: &[&str], input: &str) -> Option<(i32, Vec<u8>)> {
    let input = input.replace("/bin/sh", &shell.join(" "));
    let [program, arguments @ ..] = shell else {
        return None;
    };
    let child = Command::new(program)
        .args(arguments)
        .arg("-s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.ok()?;
    child.stdin.take()?.write_all(input.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    Some((ended.status.code().unwrap(), ended.stdout))
}

#[test]
fn n1_the_bytes_of_a_script_arrive_unchanged_in_each_shell() {
    for shell in shells() {
        let folder = tempfile::tempdir().unwrap();
        let arrived = folder.path().join("arrived");
        let script = format!(
            "# A comment \u{2713}\ncat >'{}' <<'END'\n",
            arrived.display()
        );
        let mut script = script.into_bytes();
        script.extend_from_slice(TEXT);
        script.extend_from_slice("\nEND\necho 'größer ✓ 100%'\nexit 7\n".as_bytes());
        let script = Script::new(script).unwrap();
        let input = script.input();
        assert!(input.is_ascii(), "{input}");
        let (code, said) = output(&shell, &input).unwrap();
        let shell = shell.join(" ");
        assert_eq!(code, 7, "{shell}");
        assert_eq!(String::from_utf8_lossy(&said), "größer ✓ 100%\n", "{shell}");
        let arrived = std::fs::read(arrived).unwrap();
        let expected = [TEXT, b"\n"].concat();
        assert_eq!(
            arrived,
            expected,
            "{shell}: {}",
            String::from_utf8_lossy(&arrived)
        );
    }
}

/// Every byte but NUL, which no shell keeps, in the place of each other.
#[test]
fn n1_every_byte_is_sent_as_it_is() {
    let all: Vec<u8> = (1..=u8::MAX).chain((1..=u8::MAX).rev()).collect();
    let input = Script::new(all.clone())
        .unwrap()
        .input()
        .replace(" | /bin/sh -s", "");
    for shell in shells() {
        let (code, said) = output(&shell, &input).unwrap();
        assert_eq!((code, said), (0, all.clone()), "{shell:?}");
    }
}

#[test]
fn n1_a_script_of_ascii_goes_as_it_is() {
    let text = "#!/bin/sh\nprintf '%s\\n' \"it's 100%\"\n";
    assert_eq!(Script::new(text.into()).unwrap().input(), text);
}

#[test]
fn n1_a_script_that_proxmox_would_not_take_is_refused() {
    let problem = |bytes: Vec<u8>| Script::new(bytes).err();
    let spaces = |count: usize| vec![b' '; count];
    assert_eq!(problem(spaces(INPUT_MAX)), None);
    let said = problem(spaces(INPUT_MAX + 1)).unwrap();
    for part in ["65537 letters", "at most 65536", "fetch the rest"] {
        assert!(said.contains(part), "{said}");
    }
    // "printf '", the end of the line, and four for each byte.
    let around = Script::new("é".into()).unwrap().input().len() - 8;
    let mut text = "é".to_owned().into_bytes();
    text.extend(spaces(INPUT_MAX - 8 - around));
    assert_eq!(problem(text.clone()), None);
    text.push(b' ');
    assert!(problem(text).unwrap().contains("65537 letters"));
}

#[test]
fn a_script_is_read_from_its_folder_only() {
    let root = tempfile::tempdir().unwrap();
    let (folder, outside) = (root.path().join("join"), root.path().join("token"));
    std::fs::create_dir_all(folder.join("..data")).unwrap();
    std::fs::write(folder.join("..data/default"), "join").unwrap();
    std::os::unix::fs::symlink("..data/default", folder.join("default")).unwrap();
    std::fs::write(&outside, "secret").unwrap();
    std::fs::write(folder.join("long"), vec![b' '; 65_537]).unwrap();
    std::fs::write(folder.join("wide"), "✓".repeat(10_000)).unwrap();
    let read = |file: &Path| Script::read(&folder, file).map(|script| script.text().into_owned());

    // As a Secret is mounted.
    assert_eq!(read(Path::new("default")).unwrap(), "join");
    assert_eq!(read(&folder.join("default")).unwrap(), "join");
    for (file, problem) in [
        (outside.as_path(), "it is not in --join-dir"),
        (Path::new("../token"), "it is not in --join-dir"),
        (Path::new("/dev/zero"), "it is not in --join-dir"),
        (Path::new("..data"), "it is not a file"),
        (Path::new("long"), "it takes 65537 letters"),
        (Path::new("wide"), "it takes 120023 letters"),
        (Path::new("other"), "No such file"),
    ] {
        let said = read(file).unwrap_err();
        assert!(said.contains(problem), "{}: {said}", file.display());
    }
}
