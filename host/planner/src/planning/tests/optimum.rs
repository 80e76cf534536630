//! How far packing is from the cheapest machines, which an exhaustive search finds for few pods.

use super::*;
use crate::plan::question::Size;

/// What a machine costs: a core counts as much as 4 GiB (the module `packing` says why).
fn cost(cores: u32, gib: u64) -> u64 {
    let size = Size {
        milli_cores: u64::from(cores) * 1000,
        memory_bytes: gib * GIB,
    };
    crate::planning::up::pools::cost(size)
}

const TYPES: [(&str, u32, u64); 4] = [("s", 2, 4), ("m", 4, 8), ("fat", 4, 24), ("l", 8, 16)];
/// Thousandths of a core, and MiB.
const PODS: [(u32, u64); 7] = [
    (200, 256),
    (500, 3000),
    (1000, 1024),
    (1500, 2048),
    (1900, 6000),
    (2500, 1024),
    (3800, 7000),
];

/// The cheapest way to give each of these pods a machine: the first pod with each choice of the others, then the rest.
fn cheapest(pods: &[(u32, u64)]) -> u64 {
    let Some((first, others)) = pods.split_first() else {
        return 0;
    };
    let with = (0..1_u32 << others.len()).filter_map(|chosen| {
        let (mut cpu, mut memory, mut rest) = (first.0, first.1, Vec::new());
        for (index, pod) in others.iter().enumerate() {
            match chosen >> index & 1 {
                1 => (cpu, memory) = (cpu + pod.0, memory + pod.1),
                _ => rest.push(*pod),
            }
        }
        let holds =
            |(_, cores, gib): &&(&str, u32, u64)| cpu <= cores * 1000 && memory <= gib * 1024;
        let machine = TYPES
            .iter()
            .filter(holds)
            .map(|(_, cores, gib)| cost(*cores, *gib))
            .min()?;
        Some(machine + cheapest(&rest))
    });
    with.min().expect("the largest type takes each of the pods")
}

#[test]
fn machines_cost_at_most_a_few_percent_more_than_the_cheapest_set() {
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    let (mut ours, mut least, mut worst, mut exact) = (0, 0, 1.0_f64, 0);
    for world in 0..300 {
        let pods: Vec<_> = (0..1 + draw(7)).map(|_| PODS[draw(PODS.len())]).collect();
        let mut scene = Scene::default();
        scene.class.instance_types = TYPES
            .map(|(name, cores, gib)| instance_type(name, cores, gib))
            .to_vec();
        for (index, (cpu, memory)) in pods.iter().enumerate() {
            let spec = spec(&format!("cpu={cpu}m memory={memory}Mi"));
            scene.pending(&format!("pod-{index}"), 1, spec);
        }
        let plan = scene.plan();
        let made = plan.launches.iter().map(|launch| {
            let of =
                |(name, _, _): &&(&str, u32, u64)| launch.spec.instance_type.to_string() == *name;
            let (_, cores, gib) = TYPES.iter().find(of).unwrap();
            cost(*cores, *gib)
        });
        let made: u64 = made.sum();
        let cheapest = cheapest(&pods);
        assert!(
            made >= cheapest,
            "world {world}: pods have no machine: {pods:?}"
        );
        (ours, least) = (ours + made, least + cheapest);
        worst = worst.max(made as f64 / cheapest as f64);
        exact += u32::from(made == cheapest);
    }
    let more = 100.0 * (ours as f64 / least as f64 - 1.0);
    eprintln!("300 worlds: {exact} cheapest, {more:.1} % dearer in all, {worst:.2} times at worst");
    assert!(
        more < 5.0 && worst < 2.0,
        "{more} % dearer, {worst} times at worst"
    );
}
