//! Facts by key: in which questions each stands, and when it is left out.

use super::*;
use crate::question::{Attribute, AttributeValue, Candidate, HypervisorDescription, Question};

fn attribute(key: &str, value: AttributeValue) -> Attribute {
    let key = key.into();
    Attribute { key, value }
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::Text(value.into())
}

/// Every question that a tick asks of this world.
fn questions(scene: &Scene) -> Vec<Question> {
    let mut asked = Vec::new();
    let _ = scene.plan_with(|question| {
        asked.push(question.clone());
        reasonable(question)
    });
    asked
}

/// The hypervisors that a question shows.
fn shown(question: &Question) -> Vec<HypervisorDescription> {
    let described = |candidates: &[Candidate]| {
        let all = candidates.iter();
        all.map(|it| it.hypervisor.clone()).collect()
    };
    match question {
        Question::Rank(rank) => described(&rank.candidates),
        Question::Order(order) => described(&order.hypervisors),
        Question::Decorate(decorate) => decorate.hypervisors.clone(),
    }
}

/// `key=value` of the hypervisor, as the question shows it.
fn told(question: &Question, hypervisor: &str) -> Vec<String> {
    let shown = shown(question);
    let mut named = shown.iter().filter(|it| &*it.id.name == hypervisor);
    let attributes = &named.next().expect("a hypervisor of that name").attributes;
    assert!(
        attributes.is_sorted_by(|a, b| a.key < b.key),
        "{attributes:?}"
    );
    let in_words = attributes.iter().map(|it| match &it.value {
        AttributeValue::Text(text) => format!("{}={text}", it.key),
        AttributeValue::Integer(integer) => format!("{}={integer}", it.key),
        AttributeValue::Number(number) => format!("{}={number:?}", it.key),
        AttributeValue::Boolean(boolean) => format!("{}={boolean}", it.key),
    });
    in_words.collect()
}

/// Two pods that want a machine each.
fn busy() -> Scene {
    let mut scene = Scene::default();
    scene.pending("web", 2, spec("cpu=4"));
    scene
}

/// Two empty machines that may go.
fn idle() -> Scene {
    let mut scene = Scene::default();
    scene.machine("a", "alpha").machine("b", "beta");
    scene
}

#[test]
fn what_the_operator_says_of_a_hypervisor_stands_in_every_kind_of_question() {
    let said = [
        (
            "alpha",
            vec![
                attribute("power", AttributeValue::Integer(300)),
                attribute("rack", text("r1")),
            ],
        ),
        (
            "beta",
            vec![
                attribute("rack", text("r2")),
                attribute("ssd", AttributeValue::Boolean(true)),
            ],
        ),
    ];
    let mut kinds = [false; 3];
    for mut scene in [busy(), idle()] {
        let said = said.clone().map(|(name, said)| (name.into(), said));
        scene.cluster.hypervisor_attributes = said.into();
        for question in questions(&scene) {
            let kind = match question {
                Question::Rank(_) => 0,
                Question::Order(_) => 1,
                Question::Decorate(_) => 2,
            };
            kinds[kind] = true;
            let own = |name| {
                let mut told = told(&question, name);
                told.retain(|it| !it.starts_with("pve."));
                told
            };
            assert_eq!(own("alpha"), ["power=300", "rack=r1"]);
            assert_eq!(own("beta"), ["rack=r2", "ssd=true"]);
            assert_eq!(own("gamma"), [""; 0]);
        }
    }
    assert_eq!(kinds, [true; 3], "each kind was asked");
}
