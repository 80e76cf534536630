//! `go-template` against Go's text/template: the shipped component through the engine, and Go's own program. And templates that would do harm.

mod cost;
mod grammar;
mod hostile;
mod kinds;

use std::io::Write as _;

use fastrand::Rng;
use futures::FutureExt;
use kproxide_planner::plan::question::{
    AnswerBody, Attribute, AttributeValue, DecorateQuestion, HypervisorDescription, Machine,
    Question, Size,
};
use kproxide_testkit::{Rendered, require_text_template};
use serde_json::{Map, Value, json};

use self::kinds::{KINDS, Outcome, judge};
use super::CallError;
use crate::fixtures::{ask, candidate, decorate, engine, module};

const TEMPLATES: usize = 5000;
/// One with which each known kind of difference occurs.
const SEED: u64 = 1;

/// What a template is rendered for: a machine, and the server that it will be on.
struct Place {
    machine: Machine,
    server: HypervisorDescription,
}

/// Two, which differ in all that a template may ask.
fn places() -> [Place; 2] {
    let text = |text: &str| AttributeValue::Text(text.into());
    let (integer, number) = (AttributeValue::Integer, AttributeValue::Number);
    let yes = AttributeValue::Boolean;
    let many = [
        ("power", integer(300)),
        ("price", number(0.25)),
        ("large", number(2_500_000.0)),
        ("tiny", number(0.000_02)),
        ("pve.kernel", text("6.14.8-2-pve")),
        ("rack", text("r1")),
        ("spare", yes(false)),
        ("ssd", yes(true)),
    ];
    let few = [
        ("power", integer(-1)),
        ("price", number(99.9)),
        ("large", number(1e6)),
        ("tiny", number(0.0)),
        ("ssd", yes(false)),
    ];
    [
        place("pve1", "rack-a", 4000, &many),
        place("pve2", "", 1500, &few),
    ]
}

fn place(name: &str, zone: &str, milli_cores: u64, attributes: &[(&str, AttributeValue)]) -> Place {
    let attributes = attributes.iter().map(|(key, value)| Attribute {
        key: (*key).into(),
        value: value.clone(),
    });
    Place {
        machine: Machine {
            pool: format!("pool-of-{name}").as_str().into(),
            instance_type: format!("type-of-{name}").as_str().into(),
            size: Size {
                milli_cores,
                memory_bytes: 8 << 30,
            },
            attributes: Vec::new(),
        },
        server: HypervisorDescription {
            zone: zone.into(),
            attributes: attributes.collect(),
            ..candidate(name, 0).hypervisor
        },
    }
}

impl Place {
    /// The same facts for Go. A whole number of cores is one there too.
    fn variables(&self) -> Value {
        let Place { machine, server } = self;
        let attributes = server.attributes.iter().map(|attribute| {
            let value = match &attribute.value {
                AttributeValue::Text(text) => json!(text),
                AttributeValue::Integer(integer) => json!(integer),
                AttributeValue::Number(number) => json!(number),
                AttributeValue::Boolean(boolean) => json!(boolean),
            };
            (attribute.key.to_string(), value)
        });
        let cores = match machine.size.milli_cores {
            whole if whole % 1000 == 0 => json!(whole / 1000),
            part => json!(part as f64 / 1000.0),
        };
        json!({
            "TargetHost": &*server.id.name,
            "Cluster": server.id.cluster.to_string(),
            "Zone": &*server.zone,
            "Pool": machine.pool.to_string(),
            "InstanceType": machine.instance_type.to_string(),
            "Cores": cores,
            "MemoryMiB": machine.size.memory_bytes >> 20,
            "Attributes": attributes.collect::<Map<_, _>>(),
        })
    }

    fn question(&self, settings: &Value) -> DecorateQuestion {
        DecorateQuestion {
            machine: self.machine.clone(),
            hypervisors: vec![self.server.clone()],
            ..decorate("go-template", &settings.to_string())
        }
    }

    /// As an annotation, of which any text is valid.
    fn ours(&self, template: &str) -> Outcome {
        let settings = json!({"annotations": {"a": template}});
        match ask(&Question::Decorate(self.question(&settings))).result {
            Ok(AnswerBody::Decorations(decorated)) => {
                Outcome::Text(decorated[0].annotations["a"].clone())
            }
            Err(CallError::InvalidSettings(why)) => match refusal(&settings) {
                Some(refused) => Outcome::Parse(refused),
                None => Outcome::Render(why),
            },
            other => panic!("{template:?}: {other:?}"),
        }
    }
}

/// What is said of settings when they are checked.
fn refusal(settings: &Value) -> Option<String> {
    let (policy, settings) = (module("go-template"), settings.to_string().into());
    let checked = engine().check_settings(&policy, "go-template", settings);
    match checked.now_or_never().unwrap() {
        Ok(()) => None,
        Err(CallError::InvalidSettings(why)) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

fn asked(template: &str, place: &Place) -> Value {
    json!({"Template": template, "Variables": place.variables()})
}

fn by_go(rendered: &Rendered) -> Outcome {
    let Rendered { failed, text } = rendered;
    match failed.as_str() {
        "parse" => Outcome::Parse(text.clone()),
        "render" => Outcome::Render(text.clone()),
        _ => Outcome::Text(text.clone()),
    }
}

#[test]
fn templates_of_a_grammar_are_rendered_as_go_renders_them() {
    let Some(go) = require_text_template() else {
        return;
    };
    let mut rng = Rng::with_seed(SEED);
    let mut templates = grammar::printfs(&mut rng);
    templates.resize_with(TEMPLATES, || grammar::template(&mut rng));
    let places = places();
    let of_place = |at: usize| &places[at % places.len()];
    let questions = templates.iter().enumerate();
    let questions: Vec<Value> = questions
        .map(|(at, template)| asked(template, of_place(at)))
        .collect();

    let (mut counts, mut failed, mut unknown) = ([0; KINDS.len()], [0; 2], Vec::new());
    for (at, (template, answer)) in templates
        .iter()
        .zip(go.render(&questions).unwrap())
        .enumerate()
    {
        let (go, ours) = (by_go(&answer), of_place(at).ours(template));
        failed[0] += usize::from(matches!(go, Outcome::Parse(_)));
        failed[1] += usize::from(matches!(go, Outcome::Render(_)));
        match judge(&go, &ours) {
            Ok(None) => {}
            Ok(Some(kind)) => counts[kind] += 1,
            Err(()) => unknown.push(format!("{template:?}\n  Go:   {go:?}\n  ours: {ours:?}")),
        }
    }
    let mut out = std::io::stderr().lock();
    let differ: usize = counts.iter().sum();
    writeln!(
        out,
        "{TEMPLATES} templates, of which Go does not read {} and cannot render {}; {differ} differ:",
        failed[0], failed[1]
    )
    .unwrap();
    for (kind, count) in KINDS.iter().zip(counts) {
        writeln!(out, "{count:6}  {}", kind.name).unwrap();
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    // A kind that has gone is taken from the list; and most templates are good ones.
    assert!(!counts.contains(&0), "{counts:?}");
    assert!(
        failed.iter().all(|&count| (200..1000).contains(&count)),
        "{failed:?}"
    );
}

/// As its documentation, its chart and its values have them; and what became of the second, which it does not read.
#[test]
fn kproximates_label_strings_are_read_and_rendered_as_go_renders_their_templates() {
    let Some(go) = require_text_template() else {
        return;
    };
    let strings = [
        (
            "topology.kubernetes.io/region=proxmox-cluster,topology.kubernetes.io/zone={{ .TargetHost }}",
            vec![
                ("topology.kubernetes.io/region", "proxmox-cluster"),
                ("topology.kubernetes.io/zone", "{{ .TargetHost }}"),
            ],
        ),
        (
            "topology.kubernetes.io/zone={{ targetHost }}",
            vec![("topology.kubernetes.io/zone", "{{ targetHost }}")],
        ),
        (
            "topology.kubernetes.io/zone={{.TargetHost}}",
            vec![("topology.kubernetes.io/zone", "{{.TargetHost}}")],
        ),
    ];
    for place in places() {
        for (string, templates) in &strings {
            let question = place.question(&json!({"labels": string}));
            let answer = ask(&Question::Decorate(question)).result;
            let Ok(AnswerBody::Decorations(decorated)) = answer else {
                panic!("{string}: {answer:?}");
            };
            let questions = templates
                .iter()
                .map(|(_, template)| asked(template, &place));
            let rendered = go.render(&questions.collect::<Vec<_>>()).unwrap();
            assert_eq!(decorated[0].labels.len(), templates.len(), "{string}");
            for ((key, _), rendered) in templates.iter().zip(rendered) {
                let label = Outcome::Text(decorated[0].labels[*key].clone());
                assert_eq!(label, by_go(&rendered), "{string}");
            }
        }
    }
}

/// Were `go-template` to say this, the test above would fail.
#[test]
fn a_dropped_text_an_unknown_function_and_a_wrong_number_are_no_known_difference() {
    let Some(go) = require_text_template() else {
        return;
    };
    let text = |text: &str| Outcome::Text(text.to_owned());
    let no_function = "there is no function \"upper\"".to_owned();
    let [place, other] = places();
    for (template, place, planted) in [
        ("a{{ end }}lost", &place, text("a")),
        ("{{ if true }}a{{ end }}b{{ end }}", &other, text("ab")),
        ("{{ upper .Zone }}", &place, text("rack-a")),
        ("{{ .Zone | upper }}", &other, Outcome::Render(no_function)),
        ("{{ .Attributes.price }}", &place, text("0.3")),
        ("{{ .Attributes.large }}", &other, text("1000000")),
        (
            "{{ printf \"%.1f\" .Attributes.price }}",
            &other,
            text("99.8"),
        ),
        ("{{ printf \"%d\" .Cores }}", &other, text("1")),
    ] {
        let go = go.render(&[asked(template, place)]).unwrap();
        let go = by_go(&go[0]);
        assert_eq!(judge(&go, &planted), Err(()), "{template}: {go:?}");
        assert!(
            judge(&go, &place.ours(template)).is_ok(),
            "{template}: {go:?}"
        );
    }
}
