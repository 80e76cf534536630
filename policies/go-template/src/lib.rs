//! `go-template`: labels, annotations and taints from Go templates, as kproximate's `kpNodeLabels` has them. The default.
//!
//! `{"labels": {"example.com/rack": "{{ .TargetHost }}-{{ .Pool }}"}}`, or `{"labels": "a={{ .TargetHost }},b=c"}` as
//! kproximate writes it. A template or a label that is wrong is an error that names the key, the hypervisor and the cause:
//! a machine with half of its labels would attract the wrong pods.

mod settings;
mod syntax;
mod template;

mod actions;
mod resolve;

mod functions;
mod printf;

use std::collections::BTreeMap;

use kproxide_policy_sdk::{
    About, Decoration, Hypervisor, Labels, Machine, Policy, PolicyError, Taint,
};

pub use settings::{Settings, TaintTemplate};
use template::{Compiled, Compiler, Variables};

pub struct GoTemplate;

impl Policy for GoTemplate {
    const ABOUT: About = About {
        name: "go-template",
        version: env!("CARGO_PKG_VERSION"),
        description: "labels, annotations and taints from Go templates",
        settings_schema: settings::SCHEMA,
    };
    type Settings = Settings;

    fn check(settings: &Settings) -> Result<(), PolicyError> {
        Templates::compile(settings).map(|_| ())
    }
}

impl Labels for GoTemplate {
    fn decorate(
        settings: &Settings,
        machine: &Machine,
        hypervisors: &[Hypervisor],
    ) -> Result<Vec<Decoration>, PolicyError> {
        let templates = Templates::compile(settings)?;
        hypervisors
            .iter()
            .map(|hypervisor| templates.render(machine, hypervisor))
            .collect()
    }
}

/// The settings with keys and effects checked and templates parsed.
struct Templates {
    labels: Vec<Compiled>,
    annotations: Vec<Compiled>,
    taints: Vec<(Compiled, String)>,
}

impl Templates {
    fn compile(settings: &Settings) -> Result<Templates, PolicyError> {
        let Settings {
            labels,
            annotations,
            taints,
        } = settings;
        let mut compiler = Compiler::default();
        let mut compile_all = |what, templates: &BTreeMap<String, String>| {
            templates
                .iter()
                .map(|(key, template)| compiler.compile(what, key, template))
                .collect::<Result<Vec<_>, _>>()
        };
        let labels = compile_all("label", labels)?;
        let annotations = compile_all("annotation", annotations)?;
        let taints = taints.iter().map(|taint| {
            let TaintTemplate { key, value, effect } = taint;
            syntax::check_effect(effect)
                .map_err(|why| PolicyError::invalid_settings(format!("taint {key:?}: {why}")))?;
            Ok((compiler.compile("taint", key, value)?, effect.clone()))
        });
        Ok(Templates {
            labels,
            annotations,
            taints: taints.collect::<Result<_, PolicyError>>()?,
        })
    }

    fn render(
        &self,
        machine: &Machine,
        hypervisor: &Hypervisor,
    ) -> Result<Decoration, PolicyError> {
        let variables = Variables::of(machine, hypervisor);
        let mut decoration = Decoration {
            labels: Vec::new(),
            annotations: Vec::new(),
            taints: Vec::new(),
        };
        for label in &self.labels {
            let value = label.render_checked(&variables, syntax::check_label_value)?;
            decoration.labels.push((label.key.clone(), value));
        }
        for annotation in &self.annotations {
            let value = annotation.render_checked(&variables, |_| Ok(()))?;
            decoration.annotations.push((annotation.key.clone(), value));
        }
        for (taint, effect) in &self.taints {
            let value = taint.render_checked(&variables, syntax::check_label_value)?;
            decoration.taints.push(Taint {
                key: taint.key.clone(),
                value,
                effect: effect.clone(),
            });
        }
        Ok(decoration)
    }
}

kproxide_policy_sdk::export_labels!(GoTemplate);

#[cfg(test)]
mod tests;
