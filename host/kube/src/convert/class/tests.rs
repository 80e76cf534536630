use kproxide_planner::facts::{Join, ProviderId};
use serde_json::{Value, json};

use super::*;

fn read(change: impl FnOnce(&mut Value)) -> ClassFacts {
    let mut spec = json!({
        "template": {"name": "debian-13-k3s"},
        "instanceTypes": [{"name": "m", "cores": 4, "memoryMiB": 8192}],
    });
    change(&mut spec);
    class_facts(&serde_json::from_value(spec).unwrap())
}

fn problem(change: impl FnOnce(&mut Value)) -> String {
    read(change).problem.expect("a problem")
}

fn with_pool(pool: Value) -> impl FnOnce(&mut Value) {
    move |spec| spec["cloudInit"] = json!({"ipPool": pool})
}

#[test]
fn sizes_are_generated_beside_those_that_are_written() {
    let facts = read(|spec| {
        spec["generatedTypes"] = json!([
            {"family": "general", "cores": [2, 4], "memoryPerCoreMiB": [2048, 4096], "maxPods": 60},
            {"family": "odd", "cores": [1], "memoryPerCoreMiB": [1536]},
        ]);
    });
    assert_eq!(facts.problem, None);
    let sizes: Vec<(&str, u32, u32)> = facts
        .instance_types
        .iter()
        .map(|size| (size.name.as_str(), size.cores, size.memory_mib))
        .collect();
    assert_eq!(
        sizes[1..],
        [
            ("general-2x4", 2, 4096),
            ("general-2x8", 2, 8192),
            ("general-4x8", 4, 8192),
            ("general-4x16", 4, 16384),
            ("odd-1x1.5", 1, 1536),
        ]
    );
    let general = &facts.instance_types[1];
    assert_eq!(
        (general.family.as_deref(), general.max_pods),
        (Some("general"), 60)
    );

    let only = read(|spec| {
        spec["instanceTypes"] = json!([]);
        spec["generatedTypes"] = json!([{"family": "a", "cores": [1], "memoryPerCoreMiB": [1024]}]);
    });
    assert_eq!((only.problem, only.spec.instance_types.len()), (None, 1));
    let neither = read(|spec| spec["instanceTypes"] = json!([]));
    let said = neither.problem.unwrap();
    assert!(
        said.contains("instanceTypes: is empty, and so is generatedTypes"),
        "{said}"
    );
    let many: Vec<u32> = (1..=32).collect();
    let too_many = read(|spec| {
        spec["generatedTypes"] =
            json!([{"family": "a", "cores": many, "memoryPerCoreMiB": [1024, 2048, 4096, 8192]}]);
    });
    let said = too_many.problem.unwrap();
    assert!(said.contains("these are 129 sizes: at most 100"), "{said}");
    assert_eq!(too_many.spec.instance_types.len(), 100);
    let twice = read(|spec| {
        spec["generatedTypes"] =
            json!([{"family": "a", "cores": [2, 2], "memoryPerCoreMiB": [1024]}]);
    });
    assert!(twice.problem.unwrap().contains("\"a-2x2\" is there twice"));
}

/// As an API server with another schema, or a file, may have them.
#[test]
fn sizes_that_no_machine_has_are_named_and_long_lists_make_no_more_than_100() {
    let made = |family: Value| {
        let facts = read(|spec| {
            spec["generatedTypes"] =
                json!([family, {"family": "b", "cores": [1], "memoryPerCoreMiB": [1024]}])
        });
        (
            facts.problem.unwrap_or_default(),
            facts.spec.instance_types.len(),
        )
    };
    let sizes = |cores: &[u32], memory: &[u32]| json!({"family": "a", "cores": cores, "memoryPerCoreMiB": memory});
    for (cores, memory, said) in [
        (4, 4_194_304, ""),
        (1, 128, ""),
        (1, 127, "has 1 cores and 127 MiB"),
        (5, 4_194_304, "and 20971520 MiB"),
        (513, 1024, "has 513 cores"),
        (0, 1024, "has 0 cores and 0 MiB"),
        (
            u32::MAX,
            u32::MAX,
            "has 4294967295 cores and 4294967295 MiB",
        ),
    ] {
        let (problem, count) = made(sizes(&[cores], &[memory]));
        assert!(
            problem.contains(said) && problem.is_empty() == said.is_empty(),
            "{problem}"
        );
        assert_eq!(count, 3);
    }
    let long: Vec<u32> = (1..=20_000).collect();
    let (problem, count) = made(sizes(&long, &long));
    assert!(
        problem.contains("these are 400000002 sizes: at most 100"),
        "{problem}"
    );
    assert_eq!(count, 100);
}

#[test]
fn a_template_is_told_by_one_thing_in_each_cluster() {
    let choice = |facts: &ClassFacts, cluster: &str| facts.template_in(&cluster.into()).to_string();
    let facts = read(|spec| {
        spec["clusters"] = json!({
            "lab": {"template": {"vmid": 9001}}, "home": {"template": {"tags": ["prod", "k8s"]}}, "old": {"template": {"name": "deb"}}, "bare": {},
        });
    });
    assert_eq!(facts.problem, None);
    for (cluster, said) in [
        ("lab", "with VMID 9001"),
        ("home", "with the tags k8s, prod"),
        ("old", "deb"),
        ("bare", "debian-13-k3s"),
        ("other", "debian-13-k3s"),
    ] {
        assert_eq!(choice(&facts, cluster), said);
    }
    let tagged = read(|spec| spec["template"] = json!({"tags": ["k8s"]}));
    assert_eq!(
        (choice(&tagged, "x"), tagged.problem),
        ("with the tags k8s".to_owned(), None)
    );
    // Nothing changes for classes that say nothing of it.
    assert_ne!(facts.digest, read(|_| {}).digest);
    for (field, value, said) in [
        (
            "template",
            json!({}),
            "spec.template: set exactly one of name and tags",
        ),
        (
            "template",
            json!({"name": "a", "tags": ["b"]}),
            "spec.template: set exactly one of name and tags",
        ),
        (
            "clusters",
            json!({"lab": {"template": {}}}),
            "spec.clusters.lab.template: set exactly one of name, tags and vmid",
        ),
        (
            "clusters",
            json!({"lab": {"template": {"name": "a", "vmid": 100}}}),
            "spec.clusters.lab.template: set exactly one",
        ),
    ] {
        let problem = problem(|spec| spec[field] = value);
        assert!(problem.starts_with(said), "{problem}");
    }
}

#[test]
fn a_template_and_a_size_are_enough() {
    let facts = read(|_| {});
    assert_eq!(facts.problem, None);
    assert_eq!(facts.instance_types[0].memory_bytes(), 8 << 30);
    assert_eq!(facts.instance_types[0].max_pods, 110);
    assert_eq!(facts.timeouts.join.as_secs(), 600);
    assert_eq!(facts.join.way(), Join::Template);
    assert_eq!(facts.addresses, None);
    assert_eq!(facts.machine, MachineSpec::default());
    assert_eq!(facts.provider_id, ProviderId::Auto);
}

/// Huge pages are counted in bytes.
#[test]
fn r29_a_type_may_offer_more_than_32_bits_of_a_resource() {
    let facts = read(|spec| {
        let offered = json!({"hugepages-1Gi": 8_589_934_592_u64, "hugepages-2Mi": 0});
        spec["instanceTypes"][0]["extendedResources"] = offered;
    });
    assert_eq!(facts.problem, None);
    let offered: Vec<_> = facts.instance_types[0].extended().collect();
    assert_eq!(offered, [(&"hugepages-1Gi".into(), 8 << 30)]);
}

#[test]
fn an_address_pool_is_read_and_checked() {
    let facts = read(with_pool(json!({
        "cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "ranges": [{"first": "10.0.0.10", "last": "10.0.0.19"}],
    })));
    assert_eq!(facts.problem, None);
    assert_eq!(facts.addresses.unwrap()[0].last.to_string(), "10.0.0.19");
    assert_eq!(
        facts.machine.cloud_init.unwrap().network,
        Some(Network {
            prefix_length: 24,
            gateway: Some("10.0.0.1".parse().unwrap())
        })
    );

    let check = |pool: Value, expected: &str| {
        let text = problem(with_pool(pool));
        assert!(text.contains(expected), "{text}");
    };
    let range = |first: &str, last: &str| json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "ranges": [{"first": first, "last": last}]});
    check(
        range("10.0.0.1", "10.0.0.9"),
        "ranges[0]: holds the gateway",
    );
    check(range("10.0.0.9", "10.0.0.5"), "10.0.0.9-10.0.0.5 is empty");
    check(range("10.0.0.200", "10.0.0.255"), "holds 10.0.0.255");
    check(range("10.0.0.0", "10.0.0.0"), "holds 10.0.0.0");
    check(
        range("10.0.1.1", "10.0.1.9"),
        "\"10.0.1.1\" is outside of 10.0.0.0/24",
    );
    check(
        range("ten", "10.0.0.9"),
        "ranges[0].first: \"ten\" is not an IP address",
    );
    check(
        json!({"cidr": "10.0.0.0/33", "ranges": []}),
        "\"10.0.0.0/33\" is not a network",
    );
}

#[test]
fn r36_the_gateway_of_an_ipv6_network_may_be_link_local() {
    let pool = |cidr: &str, gateway: &str, first: &str| {
        let range = json!({"first": first, "last": first});
        read(with_pool(
            json!({"cidr": cidr, "gateway": gateway, "ranges": [range]}),
        ))
    };
    let facts = pool("2001:db8:20::/64", "fe80::1", "2001:db8:20::10");
    assert_eq!(facts.problem, None);
    let network = facts.machine.cloud_init.unwrap().network.unwrap();
    assert_eq!(network.gateway, Some("fe80::1".parse().unwrap()));

    for (cidr, gateway, first) in [
        ("10.0.0.0/24", "fe80::1", "10.0.0.10"),
        ("10.0.0.0/24", "169.254.0.1", "10.0.0.10"),
        ("2001:db8:20::/64", "2001:db8:21::1", "2001:db8:20::10"),
        ("2001:db8:20::/64", "2001:db8:20::1", "fe80::10"),
    ] {
        let text = pool(cidr, gateway, first).problem.expect("a problem");
        assert!(text.contains(&format!("is outside of {cidr}")), "{text}");
    }
}

#[test]
fn r36_each_wrong_address_is_told() {
    let text = problem(with_pool(json!({
        "cidr": "10.0.0.0/24", "gateway": "10.0.1.1",
        "ranges": [
            {"first": "10.0.2.5", "last": "10.0.3.9"},
            {"first": "ten", "last": "10.0.0.9"},
            {"first": "10.0.0.30", "last": "10.0.0.20"},
        ],
    })));
    for expected in [
        "gateway: \"10.0.1.1\" is outside of 10.0.0.0/24",
        "ranges[0].first: \"10.0.2.5\" is outside of 10.0.0.0/24",
        "ranges[0].last: \"10.0.3.9\" is outside of 10.0.0.0/24",
        "ranges[1].first: \"ten\" is not an IP address",
        "ranges[2]: 10.0.0.30-10.0.0.20 is empty",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn problems_name_field_value_and_fix() {
    let text = problem(|spec| spec["timeouts"] = json!({"join": "ten minutes"}));
    assert!(
        text.starts_with("spec.timeouts.join: \"ten minutes\" is not a length of time"),
        "{text}"
    );
    let text = problem(|spec| {
        spec["template"] = json!({"name": "t", "clone": "linked", "storage": "ceph"})
    });
    assert!(
        text.contains("spec.template.storage: cannot be used with clone: linked"),
        "{text}"
    );
}

#[test]
fn a_cpu_type_is_a_word_of_proxmox() {
    let with = |cpu_type: &str| {
        let cpu_type = cpu_type.to_owned();
        read(move |spec| spec["vmOptions"] = json!({"cpuType": cpu_type}))
    };
    for good in ["host", "x86-64-v2-AES", "custom-lab_1"] {
        let facts = with(good);
        assert_eq!(facts.problem, None);
        assert_eq!(facts.machine.vm_options.cpu_type.as_deref(), Some(good));
    }
    for bad in ["", "host,flags=+aes", "x86 64", "hôst"] {
        let text = with(bad).problem.expect("a problem");
        assert!(
            text.contains("spec.vmOptions.cpuType")
                && text.contains("is not a CPU type of Proxmox"),
            "{text}"
        );
    }
}

#[test]
fn the_digest_is_of_what_machines_show() {
    let digest = |change: fn(&mut Value)| read(change).digest;
    let base = digest(|_| {});
    // Claims have recorded it.
    assert_eq!(
        base.as_str(),
        "ce2b991f6b44d4339239f4d5483cd6d677471a181d587c1a50c2debef9f93dd9"
    );
    assert_eq!(
        base,
        digest(|spec| spec["timeouts"] = json!({"join": "1m"}))
    );
    assert_eq!(base, digest(|spec| spec["tags"] = json!(["k8s"])));
    assert_ne!(
        base,
        digest(|spec| spec["template"]["name"] = json!("other"))
    );
    assert_ne!(
        base,
        digest(|spec| spec["cloudInit"] = json!({"user": "ops"}))
    );
    assert_ne!(
        base,
        digest(|spec| spec["vmOptions"] = json!({"cpuType": "host"}))
    );
    assert_eq!(base, digest(|spec| spec["vmOptions"] = json!({})));
}

#[test]
fn interfaces_stand_by_number_and_net0_must_be_there() {
    let facts = read(|spec| {
        spec["network"] = json!([
            {"name": "net10", "bridge": "vn1", "queues": "auto"},
            {"name": "net0", "vlan": 7, "macPrefix": "BC:24:11"},
            {"name": "net2", "bridge": "vmbr1", "queues": 4, "trunks": [10, 20], "mtu": 1},
        ]);
    });
    assert_eq!(facts.problem, None);
    let names: Vec<&str> = facts.machine.network.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["net0", "net2", "net10"]);
    let plain = read(|_| {});
    assert_ne!(plain.digest, facts.digest);
    for (network, said) in [
        (
            json!([{"name": "net1", "bridge": "vmbr0"}]),
            "spec.network: has no net0",
        ),
        (
            json!([{"name": "net0"}, {"name": "net0"}]),
            "network[1].name: \"net0\" is there twice",
        ),
        (
            json!([{"name": "net0"}, {"name": "net032"}]),
            "network[1].name: \"net032\" is none of",
        ),
        (
            json!([{"name": "net0", "bridge": "a b"}]),
            "network[0].bridge: \"a b\" is not a bridge",
        ),
        (
            json!([{"name": "net0", "vlan": 4095}]),
            "network[0].vlan: 4095 is no VLAN",
        ),
        (
            json!([{"name": "net0", "trunks": [1, 0]}]),
            "network[0].vlan: 0 is no VLAN",
        ),
        (
            json!([{"name": "net0", "mtu": 575}]),
            "network[0].mtu: 575 is neither 1",
        ),
        (
            json!([{"name": "net0", "mtu": 1500, "model": "e1000"}]),
            "network[0].mtu: is for model virtio",
        ),
        (
            json!([{"name": "net0", "macPrefix": "01:24"}]),
            "begins a multicast address",
        ),
        (
            json!([{"name": "net0", "macPrefix": "02:1"}]),
            "is not 1 to 5 bytes",
        ),
        (
            json!([{"name": "net0", "queues": 65}]),
            "\"65\" is neither auto nor a number from 1 to 64",
        ),
    ] {
        let problem = problem(|spec| spec["network"] = network);
        assert!(problem.contains(said), "{problem}");
    }
}
