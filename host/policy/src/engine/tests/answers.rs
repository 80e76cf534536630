//! Answers in a form that no policy may give, and those at the edge of what it may.

use kproxide_planner::facts::{Taint, TaintEffect};
use kproxide_planner::plan::question::{
    AnswerBody, Decoration, Ranking, Rejected, Removals, Scored,
};

use super::{ask, error_of, hostile, question};

fn ranked(what: &str) -> Ranking {
    match hostile(what).result.unwrap() {
        AnswerBody::Ranking(ranking) => ranking,
        other => panic!("{other:?}"),
    }
}

fn scored(index: u32, score: f64, reason: &str) -> Scored {
    Scored {
        index,
        score,
        reason: reason.to_owned(),
    }
}

fn labels(what: &str) -> Result<AnswerBody, String> {
    ask(&question(
        "hostile-labels",
        &format!(r#"{{"do": "{what}"}}"#),
    ))
    .result
    .map_err(|error| error.to_string())
}

fn scale_down(what: &str) -> Result<AnswerBody, String> {
    ask(&question(
        "hostile-scale-down",
        &format!(r#"{{"do": "{what}"}}"#),
    ))
    .result
    .map_err(|error| error.to_string())
}

#[test]
fn f84_f85_f88_a_ranking_that_breaks_a_rule_is_refused_with_the_rule() {
    for (what, error) in [
        (
            "nan-score",
            "the score NaN of placement 0 is not between 0 and 1",
        ),
        (
            "score-above-one",
            "the score 1.5 of placement 0 is not between 0 and 1",
        ),
        (
            "negative-score",
            "the score -0.25 of placement 0 is not between 0 and 1",
        ),
        (
            "unknown-placement",
            "placement index 3 is out of range: there are 3 candidates",
        ),
        (
            "unknown-rejection",
            "rejection index 3 is out of range: there are 3 candidates",
        ),
        (
            "placed-twice",
            "index 0 is given twice, the second time as a placement",
        ),
        (
            "rejected-too",
            "index 0 is given twice, the second time as a rejection",
        ),
        (
            "ineligible-placed",
            "it placed the machine on home/pve3, which is not eligible: offline",
        ),
    ] {
        assert_eq!(
            error_of(hostile(what)),
            format!("its answer is invalid: {error}"),
            "{what}"
        );
    }
}

#[test]
fn a_good_ranking_arrives_as_it_is() {
    let expected = Ranking {
        placements: vec![
            scored(0, 0.5, "as good as any"),
            scored(1, 0.5, "as good as any"),
        ],
        rejected: vec![Rejected {
            index: 2,
            reason: "offline".to_owned(),
        }],
        state: None,
    };
    assert_eq!(ranked("behave"), expected);
    assert_eq!(
        ranked("nothing-placed"),
        Ranking {
            placements: Vec::new(),
            ..expected
        }
    );
}

#[test]
fn no_candidate_is_an_answer_and_a_defect_is_none() {
    let not_now = AnswerBody::NoCandidate("not before noon".to_owned());
    assert_eq!(hostile("no-candidate").result, Ok(not_now.clone()));
    assert_eq!(scale_down("no-candidate"), Ok(not_now.clone()));
    assert_eq!(labels("no-candidate"), Ok(not_now));
    let defect = "it reports a defect of its own: the table of racks is empty";
    assert_eq!(error_of(hostile("internal")), defect);
    assert_eq!(scale_down("internal"), Err(defect.to_owned()));
    assert_eq!(labels("internal"), Err(defect.to_owned()));
}

#[test]
fn f89_reasons_are_made_safe_to_print() {
    assert_eq!(
        ranked("unprintable-reason").placements,
        [scored(
            0,
            0.5,
            "one\u{fffd}\u{fffd}two \u{fffd}[31mred \u{fffd}txet"
        )]
    );
    assert_eq!(
        ranked("long-reason").placements,
        [scored(0, 0.5, &"ä".repeat(150))]
    );
}

/// A total order of floats tells the zeros apart.
#[test]
fn f88_there_is_one_zero() {
    assert!(
        ranked("negative-zero").placements[0]
            .score
            .is_sign_positive()
    );
}

#[test]
fn f84_f88_a_plan_that_breaks_a_rule_is_refused_with_the_rule() {
    for (what, error) in [
        (
            "unknown-node",
            "removal index 2 is out of range: there are 2 nodes",
        ),
        (
            "removed-twice",
            "index 0 is given twice, the second time as a removal",
        ),
        (
            "score-above-one",
            "the score inf of removal 0 is not between 0 and 1",
        ),
        (
            "huge-state",
            "its state has 4097 bytes; at most 4096 are kept",
        ),
    ] {
        assert_eq!(
            scale_down(what),
            Err(format!("its answer is invalid: {error}")),
            "{what}"
        );
    }
    let all = vec![
        scored(0, 0.5, "as good as any"),
        scored(1, 0.5, "as good as any"),
    ];
    assert_eq!(
        scale_down("behave"),
        Ok(AnswerBody::Removals(Removals {
            removals: all,
            state: None
        }))
    );
}

#[test]
fn f89_a_decoration_that_kubernetes_would_refuse_is_refused_first() {
    let name = "a name is 1 to 63 letters, digits, '-', '_' or '.', and begins and ends with a letter or digit";
    let prefix = "a prefix is a lower-case DNS name of at most 253 characters";
    let value = "it must be empty, or 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit";
    for (what, error) in [
        ("invalid-key", format!("the label key \"rack number\" is invalid: {name}")),
        ("invalid-prefix", format!("the label key \"Example.com/rack\" is invalid: {prefix}")),
        ("invalid-value", format!("the value \"<no value>\" of label \"rack\" is invalid: {value}")),
        ("invalid-taint-value", format!("the value \"a b\" of taint \"rack\" is invalid: {value}")),
        ("reserved-label", "the label key \"kproxide.dev/pool\" is reserved: kproxide.dev is kproxide's own".to_owned()),
        ("reserved-taint", "the taint key \"kproxide.dev/draining\" is reserved: kproxide.dev is kproxide's own".to_owned()),
        ("hostname", "the label key \"kubernetes.io/hostname\" is reserved: it is the Node's identity".to_owned()),
        (
            "control-plane",
            "the label key \"node-role.kubernetes.io/control-plane\" is reserved: kproxide makes no control planes".to_owned(),
        ),
        (
            "unknown-effect",
            "the taint \"rack\" has effect \"NoRun\": use NoSchedule, PreferNoSchedule or NoExecute".to_owned(),
        ),
        ("label-twice", "the label \"rack\" is given twice".to_owned()),
        ("taint-twice", "the taint \"rack\" is given twice".to_owned()),
        ("many-labels", "65 labels, annotations or taints are given; at most 64 are taken".to_owned()),
        ("long-annotation", "the annotation \"facts\" is longer than 4096 bytes".to_owned()),
    ] {
        assert_eq!(labels(what), Err(format!("its answer is invalid: for home/pve1: {error}")), "{what}");
    }
}

#[test]
fn there_is_one_decoration_for_each_hypervisor() {
    assert_eq!(
        labels("one-too-few"),
        Err("its answer is invalid: 2 decorations for 3 hypervisors".to_owned())
    );
    assert_eq!(
        labels("one-too-many"),
        Err("its answer is invalid: 4 decorations for 3 hypervisors".to_owned())
    );
    let decoration = Decoration {
        labels: [("rack".to_owned(), "a".to_owned())].into(),
        annotations: [(
            "example.com/note".to_owned(),
            "any text: <at all>".to_owned(),
        )]
        .into(),
        taints: vec![Taint {
            key: "rack".into(),
            value: "".into(),
            effect: TaintEffect::NoSchedule,
        }],
    };
    assert_eq!(
        labels("behave"),
        Ok(AnswerBody::Decorations(vec![decoration; 3]))
    );
}

#[test]
fn w15_only_what_is_visible_passes() {
    for (text, expected) in [
        ("rack a: 50 % \"free\" \\", "rack a: 50 % \"free\" \\"),
        (" trimmed\n", "trimmed"),
        // Left-to-right and right-to-left marks, an override, an isolate, the Arabic letter mark.
        (
            "a\u{200e}b\u{200f}c\u{202e}d\u{2066}e\u{61c}f",
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f",
        ),
        // Zero-width space, joiners, soft hyphen, byte order mark, invisible times.
        (
            "a\u{200b}b\u{200d}c\u{ad}d\u{feff}e\u{2062}f",
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f",
        ),
        // Tags, which hide a whole text; variation selectors; fillers; private use.
        (
            "a\u{e0041}b\u{e007f}c\u{fe0f}d\u{e0101}e\u{3164}f\u{e000}g",
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}g",
        ),
        (
            "a\u{1b}[31mb\u{85}c\u{2028}d\u{7f}e",
            "a\u{fffd}[31mb\u{fffd}c\u{fffd}d\u{fffd}e",
        ),
        // Other languages, with accents of their own, and pictures.
        (
            "Gestell 3 für Köln, e\u{301}te\u{301}",
            "Gestell 3 für Köln, e\u{301}te\u{301}",
        ),
        ("机架 रैक राक стойка 🦀", "机架 रैक राक стойка 🦀"),
    ] {
        assert_eq!(
            kproxide_common::foreign::line(text, 1000),
            expected,
            "{text:?}"
        );
    }
    assert_eq!(
        kproxide_common::foreign::line("für", 2),
        "f",
        "cut at a character"
    );
}
