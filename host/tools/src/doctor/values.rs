//! The chart's values before anything is installed, as the objects that the chart would make of them.

use kproxide_common::paths::{AUTHORITIES, CREDENTIALS, JOIN};
use kproxide_planner::keys::GROUP;
use serde_json::{Map, Value, json};

use super::installation::Files;
use super::pod;
use crate::manifest::{BadInput, Object};
use kproxide_kube::crd::VERSION;

/// What the values say.
pub struct Values {
    pub objects: Vec<Object>,
    /// The template of the controller's pod, as far as it decides where the pod runs. `None`: the values want no pod.
    pub pod: Option<Value>,
    /// Credentials and scripts that stand in the values themselves, by their paths in the pod.
    pub files: Files,
    /// Some credentials are in a Secret.
    pub hides_credentials: bool,
    /// Some join script is in a Secret.
    pub hides_scripts: bool,
}

impl Values {
    /// Of the text of a file.
    ///
    /// # Errors
    /// It is no YAML, or has none of the three maps.
    pub fn read(file: &str, text: &str) -> Result<Self, BadInput> {
        let bad = |problem: String| BadInput {
            at: file.to_owned(),
            problem,
        };
        let values: Value = serde_saphyr::from_str(text).map_err(|error| bad(error.to_string()))?;
        let maps = ["clusters", "nodeClasses", "nodePools"];
        if maps
            .iter()
            .all(|map| entries(&values[map]).next().is_none())
        {
            return Err(bad(
                "it has none of clusters, nodeClasses and nodePools, which are maps by name: are these the chart's values?"
                    .to_owned(),
            ));
        }
        let mut read = Self {
            objects: Vec::new(),
            pod: pod::of_values(&values),
            files: Files::new(),
            hides_credentials: false,
            hides_scripts: false,
        };
        for (name, cluster) in entries(&values["clusters"]) {
            read.take_cluster(file, name, cluster);
        }
        for (name, class) in entries(&values["nodeClasses"]) {
            read.take_class(file, name, class);
        }
        let names = |map: &Value| {
            entries(map)
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        let (clusters, classes) = (names(&values["clusters"]), names(&values["nodeClasses"]));
        for (name, pool) in entries(&values["nodePools"]) {
            let mut added = json!({ "clusters": clusters });
            if let Some(class) = classes.first() {
                added["nodeClass"] = json!(class);
            }
            read.add(file, "NodePool", name, added, &pool["spec"]);
        }
        Ok(read)
    }

    fn take_cluster(&mut self, file: &str, name: &str, cluster: &Value) {
        let mut added = json!({
            "credentials": name, "vmidRange": { "first": 20000, "last": 20999 },
        });
        if cluster["caConfigMap"]["name"].is_string() {
            added["tls"] = json!({ "caFile": format!("{AUTHORITIES}/{name}.pem") });
        }
        let credentials = &cluster["credentials"];
        self.hides_credentials |= credentials["existingSecret"].is_string();
        for (field, key) in [
            ("tokenId", "token-id"),
            ("tokenSecret", "token-secret"),
            ("username", "username"),
            ("password", "password"),
        ] {
            if let Some(text) = credentials[field].as_str() {
                let path = format!("{CREDENTIALS}/{name}/{key}");
                self.files.insert(path, text.as_bytes().to_vec());
            }
        }
        if let Some(lines) = credentials["endpoints"].as_array() {
            let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
            let path = format!("{CREDENTIALS}/{name}/endpoints");
            self.files.insert(path, lines.join("\n").into_bytes());
        }
        self.add(file, "ProxmoxCluster", name, added, &cluster["spec"]);
    }

    fn take_class(&mut self, file: &str, name: &str, class: &Value) {
        let mut added = json!({});
        let generated = class["spec"]["generatedTypes"].as_array();
        if generated.is_none_or(Vec::is_empty) {
            added["instanceTypes"] = json!([{ "name": "medium", "cores": 2, "memoryMiB": 4096 }]);
        }
        let script = &class["joinScript"];
        let text = script["command"].as_str();
        let is_hidden = script["existingSecret"].is_string();
        self.hides_scripts |= is_hidden;
        if is_hidden || text.is_some() {
            added["join"] = json!({ "guestExec": { "commandSecretFile": name } });
        }
        if let Some(text) = text {
            let path = format!("{JOIN}/{name}");
            self.files.insert(path, text.as_bytes().to_vec());
        }
        self.add(file, "NodeClass", name, added, &class["spec"]);
    }

    /// What is written counts more than what the chart adds.
    fn add(&mut self, file: &str, kind: &str, name: &str, added: Value, spec: &Value) {
        let mut whole = added;
        for (field, value) in entries(spec) {
            whole[field] = value.clone();
        }
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": { "name": name }, "spec": whole,
        });
        self.objects.push(Object::from_elsewhere(object, file));
    }
}

/// In the order of the names, as Helm renders them.
fn entries(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    map.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "
clusters:
  home:
    credentials: {existingSecret: proxmox}
    spec: {endpoints: ['https://pve1:8006'], vmidRange: {first: 500, last: 599}}
  away: {credentials: {tokenId: a@pve!b, tokenSecret: c}, spec: {endpoints: ['https://pve2:8006']}}
nodeClasses:
  debian: {joinScript: {command: 'echo join'}, spec: {template: {name: t}}}
nodePools:
  workers:
";

    #[test]
    fn values_become_the_objects_that_the_chart_makes() {
        let read = Values::read("values.yaml", SMALL).unwrap();
        let told: Vec<(&str, &str)> = read
            .objects
            .iter()
            .map(|it| (it.kind(), it.name()))
            .collect();
        let expected = [
            ("ProxmoxCluster", "away"),
            ("ProxmoxCluster", "home"),
            ("NodeClass", "debian"),
            ("NodePool", "workers"),
        ];
        assert_eq!(told, expected);
        let spec = |index: usize| &read.objects[index].value["spec"];
        assert_eq!(
            spec(0)["vmidRange"],
            json!({ "first": 20000, "last": 20999 })
        );
        assert_eq!(spec(1)["vmidRange"]["first"], 500);
        assert_eq!(spec(2)["join"]["guestExec"]["commandSecretFile"], "debian");
        assert_eq!(
            spec(3),
            &json!({ "clusters": ["away", "home"], "nodeClass": "debian" })
        );
        assert_eq!(
            read.files["/etc/kproxide/credentials/away/token-secret"],
            b"c"
        );
        assert_eq!(read.files["/etc/kproxide/join/debian"], b"echo join");
        assert!(read.hides_credentials && !read.hides_scripts);
    }

    #[test]
    fn a_file_that_holds_no_values_of_the_chart_is_refused() {
        let problem = |text: &str| match Values::read("values.yaml", text) {
            Err(bad) => bad.to_string(),
            Ok(_) => String::new(),
        };
        assert!(problem("replicas: 1").starts_with("values.yaml: it has none of clusters"));
        assert!(problem("a: [").starts_with("values.yaml: "));
    }
}
