//! A new policy in a directory decides the next question: real files, the real watcher, the layout in which the kubelet mounts a ConfigMap.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::{Directories, watch_directories};

/// Less than the 30 s after which the directories are looked at anyway: it is the watcher that sees the change.
const DEADLINE: Duration = Duration::from_secs(25);

/// What the kubelet does: a folder of the new version, `..data` swapped to it in one step, the old folder removed.
fn mount(directory: &Path, version: u32, contents: &[(&str, &[u8])]) {
    let folder = directory.join(format!("..{version}"));
    fs::create_dir(&folder).unwrap();
    for (name, bytes) in contents {
        fs::write(folder.join(name), bytes).unwrap();
    }
    symlink(format!("..{version}"), directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    for (name, _) in contents {
        let link = directory.join(name);
        if !link.is_symlink() {
            symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    if let Some(old) = version.checked_sub(1) {
        let _ = fs::remove_dir_all(directory.join(format!("..{old}")));
    }
}

/// The first batch of files that changes something.
async fn next_reloads(library: &Library, files: &mut mpsc::Receiver<PolicyFiles>) -> Vec<Reload> {
    let reloads = async {
        loop {
            let reloads = library.sync(files.recv().await.unwrap()).await;
            if !reloads.is_empty() {
                return reloads;
            }
        }
    };
    tokio::time::timeout(DEADLINE, reloads)
        .await
        .expect("the change is seen in time")
}

/// The kubelet removes the old version whole, and with it the place of files that are the same in the new one.
#[tokio::test]
async fn a_file_is_found_again_after_another_key_of_its_configmap_has_changed() {
    let directory = tempfile::tempdir().unwrap();
    let [same, old, new] = ["pack", "max-cpu", "balanced"].map(|name| embedded(name).wasm);
    mount(directory.path(), 1, &[("a.wasm", old), ("b.wasm", same)]);
    let mut directories = Directories::new(&[directory.path().to_path_buf()]);
    let before = directories.read(&BTreeSet::new());
    mount(directory.path(), 2, &[("a.wasm", new), ("b.wasm", same)]);
    let content = |files: &PolicyFiles, name: &str| files[name][0].content.clone().unwrap();
    assert_eq!(&*content(&before, "b").read().await.unwrap(), same);
    assert_eq!(
        content(&before, "b"),
        content(&directories.read(&BTreeSet::new()), "b")
    );
    let said = content(&before, "a").read().await.unwrap_err().to_string();
    assert!(said.starts_with("another file lies in its place"), "{said}");
}

#[tokio::test]
async fn f92_a_configmap_update_is_taken_and_a_broken_one_refused() {
    let directory = tempfile::tempdir().unwrap();
    mount(directory.path(), 1, &[("mine.wasm", embedded("pack").wasm)]);
    let (send, mut receive) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    let library = library();
    tasks.spawn(watch_directories(
        vec![directory.path().to_path_buf()],
        library.named(),
        send,
    ));
    let digest_now = async || {
        ask(&library, &named("mine", "spread", ""))
            .await
            .digest
            .to_string()
    };

    next_reloads(&library, &mut receive).await;
    assert_eq!(digest_now().await, embedded("pack").sha256);

    mount(
        directory.path(),
        2,
        &[("mine.wasm", embedded("balanced").wasm)],
    );
    next_reloads(&library, &mut receive).await;
    assert_eq!(digest_now().await, embedded("balanced").sha256);

    // A second swap: a watch on the file or on `..data` would be blind by now.
    mount(directory.path(), 3, &[("mine.wasm", b"not wasm")]);
    let reloads = next_reloads(&library, &mut receive).await;
    assert!(
        matches!(
            &reloads[..],
            [Reload {
                outcome: ReloadOutcome::Refused(_),
                ..
            }]
        ),
        "{reloads:?}"
    );
    assert_eq!(digest_now().await, embedded("balanced").sha256);

    let packed = ruzstd::encoding::compress_to_vec(
        embedded("spread").wasm,
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    mount(directory.path(), 4, &[("mine.wasm.zst", &packed)]);
    fs::remove_file(directory.path().join("mine.wasm")).unwrap();
    next_reloads(&library, &mut receive).await;
    // Known by the bytes of the file as it lies there.
    let of_file = crate::engine::digest(&packed).to_string();
    assert_eq!(digest_now().await, of_file);

    // Nobody listens any more: the task ends.
    drop(receive);
    tokio::time::timeout(DEADLINE, tasks.join_next())
        .await
        .expect("the watcher ends with its receiver")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn f95_a_file_that_changes_without_pause_is_read_a_few_times_a_second() {
    const WRITES: u32 = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let (send, mut receive) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(watch_directories(
        vec![directory.path().to_path_buf()],
        library().named(),
        send,
    ));
    assert_eq!(receive.recv().await, Some(PolicyFiles::new()));

    let began = tokio::time::Instant::now();
    let path = directory.path().join("mine.wasm");
    let storm = tokio::task::spawn_blocking(move || {
        for n in 1..=WRITES {
            fs::write(&path, n.to_be_bytes()).unwrap();
        }
    });
    let mut reads = 0;
    let last = async {
        loop {
            let files = receive.recv().await.unwrap();
            reads += 1;
            let mine = files
                .get("mine")
                .and_then(|files| files[0].content.as_ref().ok());
            let last = Content::from(Arc::<[u8]>::from(WRITES.to_be_bytes()));
            if mine.is_some_and(|content| content.digest() == last.digest()) {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, last)
        .await
        .expect("the last write is seen in time");
    storm.await.unwrap();
    let most = began.elapsed().as_millis() / 100 + 3;
    assert!(reads <= most, "{reads} reads in {:?}", began.elapsed());
}

#[tokio::test]
async fn a_directory_that_comes_later_is_seen() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("policies");
    let (send, mut receive) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(watch_directories(
        vec![directory.clone()],
        library().named(),
        send,
    ));
    assert_eq!(receive.recv().await, Some(PolicyFiles::new()));
    drop(receive);
    tokio::time::timeout(DEADLINE, tasks.join_next())
        .await
        .expect("the watcher ends with its receiver")
        .unwrap()
        .unwrap();
}

/// What a name costs its place is what lies before it: 31 MiB of nothing.
#[tokio::test]
async fn w17_a_file_that_a_pool_names_is_waited_for_where_not_all_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let junk = fs::File::create(directory.path().join("aaa.wasm")).unwrap();
    junk.set_len((32 << 20) - 1000).unwrap();
    fs::write(directory.path().join("mine.wasm"), embedded("pack").wasm).unwrap();
    let (send, mut receive) = mpsc::channel(1);
    let library = library();
    let mut tasks = JoinSet::new();
    let watched = vec![directory.path().to_path_buf()];
    tasks.spawn(watch_directories(watched, library.named(), send));
    // Nobody knows yet which files pools name.
    let reloads = next_reloads(&library, &mut receive).await;
    let told: Vec<&str> = reloads.iter().map(|it| &*it.policy).collect();
    assert_eq!(told, ["aaa"]);
    let question = named("mine", "spread", "");
    let answer = ask(&library, &question).await;
    assert_eq!(answer.body, AnswerBody::NoCandidate(LOADING.to_owned()));

    // That question was the first that names one.
    next_reloads(&library, &mut receive).await;
    let answer = ask(&library, &question).await;
    assert_eq!(answer.digest.as_str(), embedded("pack").sha256);
    let refused = library.refusals();
    let said = &refused["aaa"].reason;
    assert!(
        refused.len() == 1 && said.contains("NodePools name come first"),
        "{said}"
    );
}
