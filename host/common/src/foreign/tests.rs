use std::io::Write as _;

use super::*;

/// What acts on a terminal or on a reader, one of each kind and both ends of each range.
const ACTS: &str = "\0\t\r\u{1b}\u{1f}\u{7f}\u{80}\u{9b}\u{9f}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{2028}";

#[test]
fn s6_what_acts_becomes_a_mark_at_the_entrance_and_at_each_exit() {
    for acting in ACTS.chars() {
        let text = format!("a{acting}b");
        let mark = "a\u{fffd}b";
        assert_eq!(value(&text), mark, "{acting:?}");
        assert_eq!(said(&format!(" {text} ")), mark, "{acting:?}");
        assert_eq!(line(&text, 9), mark, "{acting:?}");
        assert_eq!(shown(&text), mark, "{acting:?}");
        assert_eq!(log(&text), mark, "{acting:?}");
        let read = |json: &str| serde_json::from_str::<String>(json).unwrap();
        let written = serde_json::to_string(&text).unwrap();
        assert_eq!(read(&json(&written)), mark, "{acting:?}");
        // A program reads what there was.
        let escaped = escaped_json(&written);
        assert_eq!(read(&escaped), text, "{acting:?}");
        assert_eq!(shown(&escaped), escaped, "{acting:?}");
    }
    // Only exits write lines.
    assert_eq!(value("a\nb"), "a\u{fffd}b");
    assert_eq!(shown("a\nb"), "a\nb");
    assert_eq!(log("a\nb"), "a\u{fffd}b");
}

#[test]
fn harmless_text_is_neither_changed_nor_copied() {
    let texts = [
        "",
        "workers-x7 is Ready",
        "Gestell 3 für Köln, e\u{301}te\u{301} … 机架 रैक стойка 🦀",
    ];
    for text in texts {
        for clean in [
            value(text),
            visible(text),
            shown(text),
            log(text),
            escaped_json(text),
        ] {
            assert!(
                matches!(clean, Cow::Borrowed(same) if same == text),
                "{text}"
            );
        }
        assert_eq!(json(text), text);
    }
    // What is clean stays as it is, however often it comes by.
    assert_eq!(value("a\u{fffd}b"), "a\u{fffd}b");
}

#[test]
fn escapes_of_json_are_read_as_a_program_reads_them() {
    for (text, expected) in [
        (
            r#"{"a\u001b": "b\\u001b\\\u001bc"}"#,
            r#"{"a�": "b\\u001b\\�c"}"#,
        ),
        (r#""\n\"\\n\/\t""#, r#""\n\"\\n\/�""#),
        (
            r#""\u202E\u00e9\ud83e\udd80\u0""#,
            r#""�\u00e9\ud83e\udd80\u0""#,
        ),
    ] {
        assert_eq!(
            json(text),
            expected.replace(r"\ufffd", "\u{fffd}").as_str(),
            "{text}"
        );
    }
}

#[test]
fn s6_a_foreign_text_has_200_letters() {
    let letters = |text: &str| text.chars().count();
    assert_eq!(value(&"ä".repeat(200)), "ä".repeat(200));
    let long = "ä\u{1b}".repeat(500_000);
    assert_eq!(letters(&value(&long)), 201);
    assert!(value(&long).ends_with("\u{fffd}…"));
    assert_eq!(said(&long), value(&long));
    // A key may be longer, and is compared as a whole.
    let longest = format!("{}/{}", "a".repeat(253), "b".repeat(63));
    assert_eq!(key(&longest), longest);
    assert_eq!(letters(&key(&format!("{longest}c"))), 318);
}

#[test]
fn s6_a_line_is_not_longer_for_what_was_taken_out_of_it() {
    assert_eq!(line(&"\u{1}".repeat(100), 100), "\u{fffd}".repeat(33));
}

#[test]
fn s5_of_what_a_guest_prints_its_end_is_kept_without_the_secrets_of_the_script() {
    let said = format!(
        "{}\u{1b}]52;c;aGk=\u{7}\nK10abcdef0123456789::server:4711 is wrong",
        "x ".repeat(500_000)
    );
    let kept = end_of(&output(&said, SCRIPT), OUTPUT_BYTES_MAX);
    assert!(
        kept.len() <= OUTPUT_BYTES_MAX + "… ".len(),
        "{}",
        kept.len()
    );
    assert!(
        kept.starts_with("… x") && kept.ends_with(" | [hidden] is wrong"),
        "{kept}"
    );
    assert!(!kept.chars().any(acts), "{kept:?}");
}

/// Each of two pieces is clean by itself: what was cut in between does no harm.
#[test]
fn s6_what_a_command_writes_is_clean_but_for_its_own_colours() {
    let mut out = Out::new(Vec::new());
    let foreign = "a\u{1b}[2J";
    let number = 5;
    writeln!(out, "{foreign}\u{9b}31m{number}").unwrap();
    out.write_all(b"\xff\xc2").unwrap();
    write!(out.raw(), "\u{1b}[1m").unwrap();
    let written = String::from_utf8(std::mem::take(out.raw())).unwrap();
    assert_eq!(
        written,
        "a\u{fffd}[2J\u{fffd}31m5\n\u{fffd}\u{fffd}\u{1b}[1m"
    );
}

const SCRIPT: &str = "curl -sfL https://get.k3s.io/installer | K3S_TOKEN=K10abcdef0123456789::server:4711 sh\n\
                      kubeadm join 10.0.0.5:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:99\n\
                      ctr pull registry.example.org/k3s:1 && ./hooks/after-joining /etc/rancher/k3s.yaml wJalrXUtnFEMI/K7MDENG/bPxRfiCY=\n";

#[test]
fn what_a_guest_says_becomes_one_clean_line() {
    for (said, expected) in [
        ("status: done\n\nerrors: []\n", "status: done | errors: []"),
        (
            "\u{1b}[0;31mfailed\u{1b}[0m to start\u{7}",
            "failed to start\u{fffd}",
        ),
        ("10%\r20%\r100%", "10% | 20% | 100%"),
        ("a\tb \u{202e}c\u{0}", "a b \u{fffd}c\u{fffd}"),
        ("", ""),
    ] {
        assert_eq!(output(said, ""), expected, "{said:?}");
    }
}

#[test]
fn what_may_be_a_secret_is_hidden() {
    for (said, expected) in [
        (
            "+ kubeadm join 10.0.0.5:6443 --token abcdef.0123456789abcdef",
            "+ kubeadm join 10.0.0.5:6443 --token [hidden]",
        ),
        (
            "joining with abcdef.0123456789abcdef now",
            "joining with [hidden] now",
        ),
        (
            "K3S_TOKEN=K10abcdef0123456789::server:4711 sh",
            "K3S_TOKEN=[hidden] sh",
        ),
        ("a=\"K10abcdef0123456789::server:4711\"", "[hidden]"),
        ("password: hunter2", "password: [hidden]"),
        // Of another one's, in a template that joins by itself.
        ("--token=xyz", "--token=[hidden]"),
        (
            "curl: (7) https://get.k3s.io/installer: Connection refused",
            "curl: (7) https://get.k3s.io/installer: Connection refused",
        ),
        // As a slash is in Base64 too.
        ("key wJalrXUtnFEMI/K7MDENG/bPxRfiCY=", "key [hidden]"),
        (
            "registry.example.org/k3s:1 ./hooks/after-joining /etc/rancher/k3s.yaml",
            "registry.example.org/k3s:1 ./hooks/after-joining /etc/rancher/k3s.yaml",
        ),
        // The start of one, where the text was cut.
        ("joining with abcdef.0123…", "joining with [hidden]"),
        ("waits for /etc/rancher/k3s…", "waits for /etc/rancher/k3s…"),
    ] {
        assert_eq!(output(said, SCRIPT), expected, "{said}");
    }
}

#[test]
fn words_stay_whole_and_in_bounds() {
    let text = "größer als alles andere ".repeat(40);
    let text = text.trim_end();
    let words: Vec<_> = text.split(' ').collect();
    for bytes in 10..200 {
        let start = start_of(text, bytes);
        let end = end_of(text, bytes);
        assert!(start.len() <= bytes + '…'.len_utf8() && end.len() <= bytes + "… ".len());
        for cut in [start.strip_suffix('…'), end.strip_prefix("… ")] {
            assert!(cut.unwrap().split(' ').all(|word| words.contains(&word)));
        }
    }
    assert_eq!(start_of("short", 10), "short");
    assert_eq!(end_of("short", 10), "short");
}
