use super::*;

const MIB: u64 = 1 << 20;

/// Two children that hold 200 MiB each, of 400 MiB for all.
fn two_children() -> (Workers, [Arc<Policy>; 2]) {
    let workers = Workers::new("no-program".into(), 400 * MIB);
    let policies = [1, 2].map(|asked| {
        let bytes: Arc<[u8]> = [0].into();
        Arc::new(Policy {
            shared: workers.0.clone(),
            content: bytes.into(),
            bytes: Mutex::default(),
            process: Arc::default(),
            is_starting: AtomicBool::new(false),
            unstarted: Mutex::default(),
            held_bytes: AtomicU64::new(200 * MIB),
            needs_bytes: AtomicU64::new(200 * MIB),
            is_displaced: AtomicBool::new(false),
            asked: AtomicU64::new(asked),
        })
    });
    let known = policies.iter().map(Arc::downgrade);
    lock(&workers.0.policies).extend(known);
    (workers, policies)
}

fn held(policies: &[Arc<Policy>; 2]) -> [u64; 2] {
    [0, 1].map(|index| policies[index].held_bytes.load(Relaxed) / MIB)
}

#[test]
fn the_child_that_was_asked_least_recently_ends_for_another() {
    let (workers, policies) = two_children();
    let left = 400 * MIB - 200 * MIB - CALL_BYTES;
    assert_eq!(workers.0.make_room(false), left);
    assert_eq!(held(&policies), [0, 200]);
    // There is room now.
    workers.0.make_room(false);
    assert_eq!(held(&policies), [0, 200]);
    // But not for one that needs more.
    assert_eq!(workers.0.make_room(true), 400 * MIB - CALL_BYTES);
    assert_eq!(held(&policies), [0, 0]);
}

#[test]
fn w16_what_children_need_at_once_is_known_with_what_there_is() {
    let (workers, policies) = two_children();
    let digests: BTreeSet<_> = (policies.iter())
        .map(|policy| policy.content.digest().clone())
        .collect();
    // One file is no several.
    assert_eq!((digests.len(), workers.misfit(&digests)), (1, None));
    let bytes: Arc<[u8]> = [1].into();
    let other = Arc::new(Policy {
        shared: workers.0.clone(),
        content: bytes.into(),
        bytes: Mutex::default(),
        process: Arc::default(),
        is_starting: AtomicBool::new(false),
        unstarted: Mutex::default(),
        held_bytes: AtomicU64::new(0),
        needs_bytes: AtomicU64::new(150 * MIB),
        is_displaced: AtomicBool::new(true),
        asked: AtomicU64::new(0),
    });
    lock(&workers.0.policies).push(Arc::downgrade(&other));
    let mut both = digests;
    both.insert(other.content.digest().clone());
    let misfit = workers.misfit(&both);
    assert_eq!(misfit, Some((430 * MIB, 400 * MIB)));
    // These fit, and so do their questions.
    other.needs_bytes.store(100 * MIB, Relaxed);
    assert_eq!(workers.misfit(&both), None);
}

#[test]
fn no_child_ends_while_it_works() {
    let (workers, policies) = two_children();
    let works = policies.each_ref().map(|it| it.process.try_lock().unwrap());
    assert_eq!(workers.0.make_room(false), LOAD_BYTES_MIN);
    assert_eq!(held(&policies), [200, 200]);
    drop(works);
}
