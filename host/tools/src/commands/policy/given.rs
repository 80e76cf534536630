//! What an author gives to the tools: a policy, its settings, facts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kproxide_builtins::{BUILTINS, builtin};
use kproxide_planner::facts::{PolicyKind, PolicyRef};
use kproxide_planner::plan::question::{Candidate, Question};
use serde_json::Value;
use tokio::time::Instant;
use tracing::subscriber::DefaultGuard;

use crate::commands::cage;
use crate::commands::exit::Mistake;
use crate::manifest::{BadInput, Object, plain};
use kproxide_policy::heard::{Heard, Line};
use kproxide_policy::{
    CallError, Called, Engine, Execution, FilesError, LoadError, Module, PolicyFile,
    check_file_name, check_schema, digest, legal_name, read_file, unpacked,
};

/// Pools without settings give this to a policy.
const NO_SETTINGS: &str = "{}";

/// A policy, not looked at yet.
pub(crate) struct Given {
    /// By which a NodePool would use it.
    pub(crate) name: Arc<str>,
    /// The file, or the name of the built-in policy.
    pub(crate) place: String,
    /// As it lies there.
    pub(crate) packed: Arc<[u8]>,
}

impl Given {
    /// # Errors
    /// There is neither such a file nor such a built-in policy.
    pub(crate) fn read(text: &str) -> Result<Self, Mistake> {
        if let Some(builtin) = builtin(text) {
            return Ok(Self {
                name: builtin.name.into(),
                place: builtin.name.to_owned(),
                packed: builtin.wasm.into(),
            });
        }
        let packed = read_file(Path::new(text)).map_err(|error| {
            let known: Vec<_> = BUILTINS.iter().map(|it| it.name).collect();
            let known = known.join(", ");
            Mistake(format!(
                "{error}: give a .wasm file, or a built-in policy: {known}"
            ))
        })?;
        let file = text.rsplit('/').next().unwrap_or(text);
        let name = file.split(".wasm").next().unwrap_or(file);
        Ok(Self {
            name: legal_name(name).into(),
            place: text.to_owned(),
            packed,
        })
    }

    /// As a policy directory would have it.
    pub(crate) fn file(&self) -> PolicyFile {
        PolicyFile {
            path: self.place.as_str().into(),
            content: Ok(self.packed.clone().into()),
        }
    }

    /// Why a policy directory would not take a file of this name.
    pub(super) fn misnamed(&self) -> Option<FilesError> {
        match builtin(&self.place) {
            Some(_) => None,
            None => check_file_name(Path::new(&self.place)).err(),
        }
    }

    /// SHA-256 of the file as it lies.
    pub(crate) fn digest(&self) -> String {
        digest(&self.packed).to_string()
    }

    /// In this process: how much it takes is limited.
    ///
    /// # Errors
    /// What packed it is not known, or it is too big.
    pub(crate) fn unpacked(&self) -> Result<Vec<u8>, LoadError> {
        unpacked(&self.packed).map(|bytes| bytes.into_owned())
    }

    /// # Errors
    /// Why kproxide would not take it.
    pub(crate) async fn load(&self, tools: &Tools) -> Result<Module, String> {
        let loaded = match builtin(&self.place) {
            Some(_) => tools.engine.load(self.packed.clone()).await,
            None => tools.engine.load_file(self.packed.clone()).await,
        };
        loaded.map_err(|error| error.to_string())
    }

    /// # Errors
    /// kproxide would not take it: said with its file.
    pub(super) async fn loaded(&self, tools: &Tools) -> Result<Module, Box<dyn Error>> {
        let loaded = self.load(tools).await;
        loaded.map_err(|problem| format!("{}: {problem}", self.place).into())
    }
}

/// The settings of a file as JSON text.
///
/// # Errors
/// The file cannot be read, or what it has are no settings.
pub(crate) fn settings(path: Option<&Path>) -> Result<Option<Arc<str>>, Box<dyn Error>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let documents = read(path)?;
    let no_settings = |problem: &str| BadInput {
        at: path.display().to_string(),
        problem: problem.to_owned(),
    };
    match &documents[..] {
        [] => Ok(Some(NO_SETTINGS.into())),
        [one] if one.value.is_object() => Ok(Some(one.value.to_string().into())),
        [_] => Err(no_settings("settings are fields with values, such as `prefix: rack`").into()),
        _ => Err(no_settings("these are several documents: settings are one").into()),
    }
}

pub(crate) fn no_settings() -> Arc<str> {
    NO_SETTINGS.into()
}

/// The questions of a file with facts.
///
/// # Errors
/// The file cannot be read, or a field of it is wrong.
pub(super) fn questions(path: &Path) -> Result<Vec<Question>, Box<dyn Error>> {
    let documents = read(path)?;
    let questions: Vec<Question> = documents.iter().map(question).collect::<Result<_, _>>()?;
    match questions.is_empty() {
        true => Err(BadInput {
            at: path.display().to_string(),
            problem: "it has no facts: `kproxide policy show facts` prints some".to_owned(),
        }
        .into()),
        false => Ok(questions),
    }
}

fn question(document: &Object) -> Result<Question, BadInput> {
    let question = serde_path_to_error::deserialize(&with_text_settings(&document.value));
    let question = question.map_err(|error| {
        let field = error.path().to_string();
        document.bad(&field, error.into_inner())
    })?;
    let (word, kind) = match &question {
        Question::Rank(_) => ("rank", PolicyKind::HostSelection),
        Question::Order(_) => ("order", PolicyKind::ScaleDown),
        Question::Decorate(_) => ("decorate", PolicyKind::Labels),
    };
    let PolicyRef { kind: given, name } = &question.policy().policy;
    if *given != kind {
        let (kind, given) = (kind.as_str(), given.as_str());
        return Err(document.bad(
            &format!("{word}.policy.policy"),
            format_args!("{word} asks a policy of kind {kind}, not {given}: write {kind}/{name}"),
        ));
    }
    match twice(&question) {
        Some((field, problem)) => Err(document.bad(&field, problem)),
        None => Ok(question),
    }
}

/// A person may write settings as in a NodePool, as fields.
fn with_text_settings(document: &Value) -> Value {
    let mut document = document.clone();
    let questions = document.as_object_mut().into_iter().flatten();
    for (_, question) in questions {
        let settings = question.pointer_mut("/policy/settings");
        if let Some(settings) = settings.filter(|settings| settings.is_object()) {
            *settings = Value::String(settings.to_string());
        }
    }
    document
}

/// The field that has an id or a name which stands before it too.
fn twice(question: &Question) -> Option<(String, String)> {
    let of_candidates = |list: &'static str, candidates: &[Candidate]| {
        let ids = candidates.iter().map(|it| it.hypervisor.id.to_string());
        first_twice(list, ".hypervisor.id", ids)
    };
    match question {
        Question::Rank(rank) => of_candidates("rank.candidates", &rank.candidates),
        Question::Order(order) => {
            let names = order.nodes.iter().map(|node| node.name.to_string());
            first_twice("order.nodes", ".name", names)
                .or_else(|| of_candidates("order.hypervisors", &order.hypervisors))
        }
        Question::Decorate(decorate) => {
            let ids = decorate.hypervisors.iter().map(|it| it.id.to_string());
            first_twice("decorate.hypervisors", ".id", ids)
        }
    }
}

fn first_twice(
    list: &str,
    field: &str,
    names: impl Iterator<Item = String>,
) -> Option<(String, String)> {
    let mut seen = BTreeMap::new();
    for (index, name) in names.enumerate() {
        if let Some(first) = seen.insert(name.clone(), index) {
            return Some((
                format!("{list}[{index}]{field}"),
                format!("{name} is {list}[{first}]{field} too: give each another, or remove one"),
            ));
        }
    }
    None
}

fn read(path: &Path) -> Result<Vec<Object>, BadInput> {
    let at = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| BadInput {
        at: at.clone(),
        problem: error.to_string(),
    })?;
    plain(&at, &text)
}

/// What runs the policies of an author: built-in ones on this thread, those of files as in the controller.
pub(crate) struct Tools {
    pub(crate) engine: Engine,
    heard: Heard,
    _listening: DefaultGuard,
}

/// What came of a call.
pub(super) struct Asked {
    pub(super) called: Called,
    pub(super) log: Vec<Line>,
    pub(super) microseconds: u64,
}

impl Tools {
    /// # Errors
    /// wasmtime does not run here.
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let (heard, listening) = Heard::listen();
        Ok(Self {
            engine: cage::for_a_person(Execution::Inline)?,
            heard,
            _listening: listening,
        })
    }

    pub(super) async fn ask(&self, module: &Module, question: &Question) -> Asked {
        self.heard.take();
        let begin = Instant::now();
        let called = self.engine.ask(module, question).await;
        let microseconds = begin.elapsed().as_micros();
        Asked {
            called,
            log: self.heard.take(),
            microseconds: u64::try_from(microseconds).unwrap_or(u64::MAX),
        }
    }

    pub(crate) async fn check_settings(
        &self,
        module: &Module,
        settings: &Arc<str>,
    ) -> (Result<(), CallError>, Vec<Line>) {
        self.heard.take();
        let name = &module.info().name;
        let asked = self.engine.check_settings(module, name, settings.clone());
        // As the library of the controller.
        let checked = asked.await.and_then(|()| {
            check_schema(&module.info().settings_schema, settings)
                .map_err(CallError::InvalidSettings)
        });
        (checked, self.heard.take())
    }
}

/// The same question to this policy; without settings with those that it has. Of several that decide together only this one is asked.
pub(super) fn asked_of(
    question: &Question,
    name: &Arc<str>,
    settings: Option<&Arc<str>>,
) -> Question {
    let asked = question.policy();
    let member = asked.members.iter().find(|it| it.policy.name == *name);
    let mut question = match (asked.members.first(), member) {
        (None, _) => question.clone(),
        (Some(_), Some(member)) => question.to_member(member),
        (Some(first), None) => {
            let mut stranger = first.clone();
            stranger.settings = no_settings();
            stranger.state.clear();
            question.to_member(&stranger)
        }
    };
    let used = match &mut question {
        Question::Rank(rank) => &mut rank.policy,
        Question::Order(order) => &mut order.policy,
        Question::Decorate(decorate) => &mut decorate.policy,
    };
    used.policy.name = name.clone();
    if let Some(settings) = settings {
        used.settings = settings.clone();
    }
    question
}

pub(super) fn kind_of(question: &Question) -> PolicyKind {
    question.policy().policy.kind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Result<Vec<Question>, String> {
        let documents = plain("f.yaml", text).map_err(|error| error.to_string())?;
        let questions = documents.iter().map(question);
        questions
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_facts_of_the_page_are_facts() {
        let page = include_str!("../../../../../policies/README.md");
        let (_, after) = page.split_once("\n## Facts\n").unwrap();
        let (_, block) = after.split_once("```yaml\n").unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let questions = facts(block).unwrap();
        let [Question::Rank(rank)] = &questions[..] else {
            panic!("{questions:?}");
        };
        assert_eq!(rank.candidates.len(), 3);
        assert_eq!(rank.candidates[1].machines_of_pool, 3);
    }

    #[test]
    fn what_facts_prints_is_read_as_it_was() {
        use crate::commands::policy::facts::yaml;
        use crate::commands::policy::properties::generated;
        let kinds = [
            PolicyKind::HostSelection,
            PolicyKind::ScaleDown,
            PolicyKind::Labels,
        ];
        for kind in kinds {
            let mut question = generated(kind, 20, 3, &"a".into(), &r#"{"b": "c"}"#.into());
            if let Question::Rank(rank) = &mut question {
                // YAML has numbers that are not as exact.
                rank.context.seed = u64::MAX;
            }
            let text = yaml(&question).unwrap();
            let read = facts(&format!("{text}---\n{text}")).unwrap();
            assert_eq!(read, [question.clone(), question]);
        }
    }

    #[test]
    fn a_wrong_field_of_facts_is_named_with_its_line() {
        let text = "order:\n  policy: {policy: scale-down/a, settings: ''}\n  pol: web\n";
        let said = facts(text).unwrap_err();
        assert!(
            said.starts_with("f.yaml:3: order.pol: unknown field"),
            "{said}"
        );
        let said = facts("rank: {policy: {policy: pack, settings: ''}}\n").unwrap_err();
        assert!(
            said.contains("policy.policy") && said.contains("is not kind/name"),
            "{said}"
        );
    }

    /// The facts of the page, with other words in one place.
    fn said_of(from: &str, to: &str) -> String {
        let page = include_str!("../../../../../tests/data/policy/facts.yaml");
        assert_eq!(page.matches(from).count(), 1, "{from}");
        facts(&page.replace(from, to)).unwrap_err()
    }

    #[test]
    fn facts_for_a_policy_of_another_kind_are_refused() {
        let said = said_of("host-selection/mine", "labels/mine");
        assert_eq!(
            said,
            "f.yaml:3: rank.policy.policy: rank asks a policy of kind host-selection, not labels: write \
             host-selection/mine"
        );
    }

    #[test]
    fn two_candidates_or_two_nodes_of_one_name_are_refused_and_both_are_told() {
        assert_eq!(
            said_of("id: home/pve3", "id: home/pve2"),
            "f.yaml:28: rank.candidates[2].hypervisor.id: home/pve2 is rank.candidates[1].hypervisor.id too: give each \
             another, or remove one"
        );
        use crate::commands::policy::facts::yaml;
        use kproxide_policy::self_test::question;
        for (kind, field) in [
            (PolicyKind::ScaleDown, "order.nodes[2].name"),
            (PolicyKind::Labels, "decorate.hypervisors[3].id"),
        ] {
            let mut question = question(kind, "mine".into(), no_settings());
            match &mut question {
                Question::Order(order) => order.nodes.push(order.nodes[0].clone()),
                Question::Decorate(it) => it.hypervisors.push(it.hypervisors[0].clone()),
                Question::Rank(_) => unreachable!("not asked for"),
            }
            let said = facts(&yaml(&question).unwrap()).unwrap_err();
            assert!(said.contains(field) && said.contains("[0]"), "{said}");
        }
    }

    #[test]
    fn settings_in_facts_may_be_fields() {
        let text = include_str!("../../../../../tests/data/policy/facts.yaml");
        let of = |settings: &str| {
            let questions = facts(&text.replace("settings: '{}'", settings)).unwrap();
            questions[0].policy().settings.to_string()
        };
        assert_eq!(of("settings: {prefix: rack}"), r#"{"prefix":"rack"}"#);
        assert_eq!(of("settings: {}"), "{}");
        assert_eq!(of(r#"settings: '{"a": 1}'"#), r#"{"a": 1}"#);
    }

    #[tokio::test]
    async fn lines_of_a_policy_are_heard_and_nothing_else() {
        let hostile = kproxide_builtins::HOSTILE
            .iter()
            .find(|it| it.name == "hostile");
        let tools = Tools::new().unwrap();
        let module = tools
            .engine
            .load(hostile.unwrap().wasm.into())
            .await
            .unwrap();
        let settings: Arc<str> = r#"{"do": "log-then-panic"}"#.into();
        let question = kproxide_policy::self_test::question(
            PolicyKind::HostSelection,
            "mine".into(),
            settings,
        );
        let asked = tools.ask(&module, &question).await;
        assert!(asked.called.result.is_err());
        let texts: Vec<&str> = asked.log.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(&texts[..2], ["line 0", "line 1"]);
        assert!(texts[50].contains("more than 50 lines"), "{texts:?}");
        assert!(texts[51].contains("after 100 lines"), "{texts:?}");
        assert_eq!((asked.log[0].level.as_str(), texts.len()), ("info", 52));
    }
}
