//! Windows, budgets, schedules and ages.

use super::*;

#[test]
fn times_are_read_and_one_that_cannot_be_names_its_field() {
    let problem = |field: &str, value: Value| read(|spec| spec[field] = value).problem;
    let when = json!({"schedule": "0 22 * * 1-5", "duration": "8h", "timeZone": "Europe/Berlin"});
    let good = json!({"windows": [when], "budgets": [{"nodes": "10%"}, {"nodes": 1, "schedule": "@daily", "duration": "1h"}]});
    assert_eq!(problem("disruption", good), None);
    assert_eq!(problem("scaleUp", json!({"windows": [when]})), None);
    let mut scheduled = when.clone();
    scheduled["minNodes"] = 3.into();
    assert_eq!(problem("schedules", json!([scheduled])), None);
    for (field, value, expected) in [
        (
            "disruption",
            json!({"windows": [when, {"schedule": "@every 1h", "duration": "8h"}]}),
            "spec.disruption.windows[1].schedule: \"@every 1h\" is not a schedule: ",
        ),
        (
            "disruption",
            json!({"budgets": [{"nodes": 1, "schedule": "@daily"}]}),
            "spec.disruption.budgets[0].duration: 0s is not between 1m and 7d",
        ),
        (
            "scaleUp",
            json!({"windows": [{"schedule": "@daily", "duration": "8h", "timeZone": "Berlin"}]}),
            "spec.scaleUp.windows[0].timeZone: \"Berlin\" is no time zone of the IANA database",
        ),
        (
            "schedules",
            json!([{"schedule": "@daily", "duration": "8h", "minNodes": 4}]),
            "spec.schedules[0].minNodes: 4 is larger than limits.maxNodes 3",
        ),
        (
            "schedules",
            json!([{"schedule": "@daily", "duration": "8h"}]),
            "spec.schedules[0]: it asks for nothing: give minNodes, headroom or both",
        ),
        (
            "disruption",
            json!({"budgets": [{"nodes": "many"}]}),
            "spec.disruption.budgets[0].nodes: \"many\" is no number of machines",
        ),
    ] {
        let problem = problem(field, value).unwrap();
        assert!(problem.starts_with(expected), "{problem}");
    }
}

/// A kproxide that is older than a reason, say: it must not remove machines at any time for that.
#[test]
fn times_that_cannot_be_read_are_not_left_out() {
    let when = json!({"schedule": "@daily", "duration": 8});
    let newer = json!({"reasons": ["Bored"], "schedule": "@daily", "duration": "8h"});
    for (field, value, said) in [
        (
            "disruption",
            json!({"windows": [newer]}),
            "spec.disruption.windows[0]",
        ),
        ("schedules", json!([when]), "spec.schedules[0]"),
        (
            "scaleUp",
            json!({"windows": [when]}),
            "spec.scaleUp.windows[0]",
        ),
    ] {
        let facts = read(|spec| spec[field] = value);
        let problem = facts.problem.clone().unwrap();
        assert!(
            problem.starts_with(said) && !problem.contains("is not a schedule"),
            "{problem}"
        );
        assert!(
            facts.times().any(|(_, when)| when.problem().is_some()),
            "{field}"
        );
    }
    // Another field of it is no time.
    let facts = read(|spec| spec["scaleUp"] = json!({"stabilizationWindow": 5}));
    assert!(facts.problem.is_some() && facts.times().next().is_none());
}

/// The zones are in the program. A process can be told of other files only before it begins, so this asks another one.
#[test]
fn zones_come_with_the_program() {
    let night =
        json!({"windows": [{"schedule": "@daily", "duration": "8h", "timeZone": "Europe/Berlin"}]});
    assert_eq!(read(|spec| spec["disruption"] = night).problem, None);
    if std::env::args().any(|word| word == "--exact") {
        return;
    }
    let empty = std::env::temp_dir().join(format!("kproxide-no-zones-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args([
        "--exact",
        "convert::pool::tests::times::zones_come_with_the_program",
    ]);
    let output = again.env("TZDIR", &empty).output().unwrap();
    std::fs::remove_dir(&empty).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
fn machines_expire_after_an_hour_at_the_earliest() {
    let expiry = |text: &str| {
        let facts = read(|spec| spec["expireAfter"] = json!(text));
        let age = facts.expire_after.map(|age| age.as_hours());
        (age, facts.problem)
    };
    assert_eq!(read(|_| {}).expire_after, None);
    assert_eq!(expiry("1h"), (Some(1), None));
    assert_eq!(expiry("30d"), (Some(720), None));
    for text in ["59m", "soon"] {
        let (age, problem) = expiry(text);
        let begins = format!("spec.expireAfter: {text:?} is ");
        assert_eq!(age, None, "an unreadable age replaces nothing");
        assert!(problem.unwrap().starts_with(&begins), "{text}");
    }
}
