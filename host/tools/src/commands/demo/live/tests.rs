use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::fs;

use clap::Parser as _;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use tokio::runtime::Builder;

use super::super::plain::Plain;
use super::super::story::{Seen, Summary};
use super::super::world::Load;
use super::super::{script, world};
use super::picture::{Hypervisor, Machine, MachineState, Presence, Share};
use super::*;
use crate::args::tests::{Cli, Command};

fn terminal(width: u16, height: u16) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(width, height)).unwrap()
}

/// The picture as text, for a snapshot.
fn drawn(picture: &Picture, width: u16, height: u16) -> TestBackend {
    let mut terminal = terminal(width, height);
    terminal
        .draw(|frame| draw::draw(frame, picture, Paint::Colours))
        .unwrap();
    terminal.backend().clone()
}

fn machine(name: &str, state: MachineState, used: u64) -> Machine {
    Machine {
        name: name.to_owned(),
        state,
        requested: Share { used, of: 4000 },
    }
}

fn hypervisor(name: &str, machines: Vec<Machine>) -> Hypervisor {
    let many = machines.len() as u64;
    Hypervisor {
        name: name.to_owned(),
        presence: Presence::Online,
        cores: Share {
            used: 4 * many,
            of: 16,
        },
        memory: Share {
            used: 8 * many,
            of: 64,
        },
        machines,
    }
}

fn told(text: &str) -> Told {
    Told {
        scene: text.contains("──"),
        text: text.to_owned(),
    }
}

fn before_load() -> Picture {
    Picture {
        run: "seed 1, policy spread".to_owned(),
        at: Duration::from_secs(6),
        scene: "three hypervisors, one static Node, and no load".to_owned(),
        world: World {
            pods: Load::default(),
            hypervisors: ["pve1", "pve2", "pve3"]
                .map(|name| hypervisor(name, Vec::new()))
                .into(),
            others: vec![
                machine("agent-1", MachineState::Ready, 300),
                machine("server-1", MachineState::Ready, 0),
            ],
        },
        told: vec![
            told("00:00:00  ── three hypervisors, one static Node, and no load"),
            told("00:00:01  Node agent-1 is Ready"),
        ],
        ..Picture::default()
    }
}

fn under_load() -> Picture {
    let mut picture = before_load();
    picture.at = Duration::from_secs(31);
    picture.scene = "30 pods of 500m / 512Mi arrive".to_owned();
    picture.world.pods = Load {
        running: 7,
        pending: 21,
        all: 30,
        ending: 0,
    };
    picture.world.hypervisors = vec![
        hypervisor("pve1", vec![machine("500", MachineState::Cloning, 0)]),
        hypervisor("pve2", vec![machine("501", MachineState::Booting, 0)]),
        hypervisor("pve3", vec![machine("502", MachineState::Ready, 3500)]),
    ];
    picture.told.extend([
        told("00:00:20  ── 30 pods of 500m / 512Mi arrive"),
        told(
            "00:00:21  ScaledUpGroup: NodePool workers: workers-q5xrwms1 on homelab/pve3: no machine yet, 97 % of its memory is available; \
             not on homelab/pve2: left alone until 2026-01-05T08:01:46Z after a failed launch",
        ),
        told("00:00:24  VM 502 workers-q5xrwms1 starts on pve3"),
    ]);
    picture
}

fn summary() -> Summary {
    Summary {
        seen: Seen {
            created: 8,
            destroyed: 7,
            rejected: 4,
            reloads: 1,
            most_machines: 8,
        },
        load: Load {
            running: 4,
            all: 4,
            ..Load::default()
        },
        machines_left: 1,
    }
}

#[test]
fn the_picture_before_the_load() {
    insta::assert_snapshot!(drawn(&before_load(), 80, 24));
}

#[test]
fn the_picture_while_pods_wait_and_machines_are_cloned() {
    insta::assert_snapshot!(drawn(&under_load(), 80, 24));
}

#[test]
fn the_picture_with_a_hypervisor_down_and_one_too_full_to_show() {
    let mut picture = under_load();
    picture.paused = true;
    let machines = (510..518).map(|vmid| machine(&vmid.to_string(), MachineState::Draining, 900));
    let [full, down, kept] = &mut picture.world.hypervisors[..] else {
        panic!("three hypervisors");
    };
    *full = hypervisor("pve1", machines.collect());
    down.presence = Presence::Offline;
    down.machines[0].state = MachineState::Dead;
    kept.presence = Presence::Maintenance;
    kept.machines[0].state = MachineState::Going;
    insta::assert_snapshot!(drawn(&picture, 80, 24));
}

#[test]
fn a_large_terminal_shows_more() {
    insta::assert_snapshot!(drawn(&under_load(), 120, 36));
}

#[test]
fn the_picture_of_the_summary() {
    let mut picture = under_load();
    picture.summary = Some(summary());
    insta::assert_snapshot!(drawn(&picture, 80, 24));
}

#[test]
fn a_small_terminal_says_what_it_needs() {
    insta::assert_snapshot!(drawn(&under_load(), 44, 10));
}

#[test]
fn any_size_can_be_drawn() {
    for width in [0, 1, 79, 80, 81, 200, 500] {
        for height in [0, 1, 23, 24, 31, 32, 100] {
            drawn(&under_load(), width, height);
        }
    }
}

#[test]
fn no_color_means_no_colour() {
    let colours = |paint| {
        let mut terminal = terminal(80, 24);
        terminal
            .draw(|frame| draw::draw(frame, &under_load(), paint))
            .unwrap();
        let cells = &terminal.backend().buffer().content;
        cells
            .iter()
            .filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset))
            .count()
    };
    assert!(colours(Paint::Colours) > 0);
    assert_eq!(colours(Paint::Monochrome), 0);
}

/// A live view whose keys are pressed by a function that also sees for how long they are waited for.
fn live<K>(keys: K) -> Live<TestBackend, K>
where
    K: FnMut(Duration) -> Pressed,
{
    let run = "seed 1".to_owned();
    Live::new(terminal(80, 24), keys, Paint::Colours, 1.0, run)
}

/// Shows one frame of a scene.
fn scene<K>(live: &mut Live<TestBackend, K>, text: &str) -> Result<(), DemoError>
where
    K: FnMut(Duration) -> Pressed,
{
    let what = What::Scene(text.to_owned());
    let at = Duration::ZERO;
    live.hear(Said { at, what })?;
    live.show(SCENE)
}

fn shown<K>(live: &Live<TestBackend, K>) -> String {
    live.terminal.backend().to_string()
}

#[test]
fn the_picture_follows_the_size_of_the_terminal() {
    let mut live = live(|_| Ok(None));
    scene(&mut live, "one").unwrap();
    assert!(shown(&live).contains("what happens, and why"));
    live.terminal.backend_mut().resize(60, 20);
    scene(&mut live, "two").unwrap();
    assert!(shown(&live).contains("this terminal is 60×20"));
    live.terminal.backend_mut().resize(100, 30);
    scene(&mut live, "three").unwrap();
    assert!(shown(&live).contains("what happens, and why"));
}

#[test]
fn space_pauses_until_space() {
    let pressed = RefCell::new(
        [Key::Pause, Key::Other, Key::Resize, Key::Pause]
            .into_iter()
            .collect::<VecDeque<_>>(),
    );
    let mut live = live(|_| Ok(pressed.borrow_mut().pop_front()));
    scene(&mut live, "one").unwrap();
    assert_eq!(pressed.borrow().len(), 0);
    assert!(!shown(&live).contains("paused"));
}

#[test]
fn a_speed_of_two_halves_each_wait_but_not_a_pause() {
    let pressed = RefCell::new(vec![Key::Pause, Key::Pause]);
    let waited = RefCell::new(Vec::new());
    let mut live = live(|time| {
        waited.borrow_mut().push(time);
        Ok(pressed.borrow_mut().pop())
    });
    live.speed = 2.0;
    scene(&mut live, "one").unwrap();
    scene(&mut live, "two").unwrap();
    assert_eq!(*waited.borrow(), [SCENE / 2, PAUSED, SCENE / 2]);
}

#[test]
fn somebody_can_leave_while_it_is_paused() {
    let pressed = RefCell::new(vec![Key::Interrupt, Key::Pause]);
    let mut live = live(|_| Ok(pressed.borrow_mut().pop()));
    let left = scene(&mut live, "one").unwrap_err();
    assert!(matches!(left, DemoError::Left(Leave::Interrupt)), "{left}");
    assert!(shown(&live).contains("paused"));
    assert_eq!(
        live.end.as_deref(),
        Some("left at 00:00:00 of the run's time, in: one")
    );
}

#[test]
fn the_finished_picture_stays_until_a_key_whatever_the_terminals_size_does() {
    let pressed = RefCell::new(vec![Key::Quit, Key::Other, Key::Resize]);
    let mut live = live(|_| Ok(pressed.borrow_mut().pop()));
    let at = Duration::from_secs(675);
    let what = What::Summary(summary());
    live.hear(Said { at, what }).unwrap();
    assert_eq!(*pressed.borrow(), [Key::Quit]);
    assert!(shown(&live).contains("machines made         8"));
}

fn play(seed: u64, audience: &mut impl Audience) -> Result<(), DemoError> {
    on_its_own_time(async {
        let policy = world::policy(&demo()).await.unwrap();
        script::play(seed, policy, audience).await
    })
}

/// As it is without flags.
fn demo() -> Demo {
    let cli = Cli::try_parse_from(["kproxide", "demo"]).unwrap();
    let Command::Demo(args) = cli.command else {
        panic!("it is the demo");
    };
    args
}

fn on_its_own_time<T>(played: impl Future<Output = T>) -> T {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(played)
}

#[test]
fn a_run_ends_where_somebody_leaves_it() {
    let frames = Cell::new(0);
    let mut live = live(|_| {
        frames.set(frames.get() + 1);
        Ok((frames.get() == 3).then_some(Key::Quit))
    });
    let left = play(1, &mut live).unwrap_err();
    assert!(matches!(left, DemoError::Left(Leave::Quit)), "{left}");
    assert_eq!(frames.get(), 3);
    assert!(shown(&live).contains("agent-1"));
}

#[test]
fn a_step_shows_the_next_thing_that_happens_and_pauses_again() {
    let frames = Cell::new(0);
    let mut live = live(|time| {
        frames.set(frames.get() + 1);
        assert!(frames.get() == 1 || time == PAUSED, "{time:?}");
        Ok(Some(if frames.get() < 9 {
            Key::Step
        } else {
            Key::Quit
        }))
    });
    play(1, &mut live).unwrap_err();
    assert_eq!(frames.get(), 9);
    assert!(shown(&live).contains("paused"));
    // Each frame but the first, of the first scene, has told something new.
    let moments = live.picture.told.iter().map(|told| &told.text[..8]);
    let moments: BTreeSet<_> = moments.collect();
    assert_eq!(moments.len(), 9, "{:?}", live.picture.told);
}

/// After a change of what it shows: `KPROXIDE_UPDATE=1 cargo test -p kproxide-tools --all-features demo::`.
#[test]
fn the_picture_of_the_readme_is_the_one_that_the_demo_draws() {
    let args = demo();
    let policy = on_its_own_time(world::policy(&args)).unwrap();
    let drawn = on_its_own_time(still(&args, policy)).unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let file = format!("{root}/examples/demo.svg");
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        fs::write(&file, &drawn).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), drawn, "{file}");
    for shown in ["dead", "booting", "Server", "offline"] {
        assert!(drawn.contains(shown), "{shown}");
    }
    let readme = fs::read_to_string(format!("{root}/README.md")).unwrap();
    assert!(readme.contains("(examples/demo.svg)"));
}

/// A live view, and what its pictures showed.
struct Watched<K> {
    live: Live<TestBackend, K>,
    states: BTreeSet<String>,
    others: BTreeSet<Vec<String>>,
}

impl<K> Audience for Watched<K>
where
    K: FnMut(Duration) -> Pressed,
{
    fn hear(&mut self, said: Said) -> Result<(), DemoError> {
        self.live.hear(said)
    }

    fn look(&mut self, lab: &Lab, at: Duration) -> Result<(), DemoError> {
        let world = World::of(lab);
        for hypervisor in &world.hypervisors {
            self.states.insert(format!("{:?}", hypervisor.presence));
            let is_down = hypervisor.presence == Presence::Offline;
            for Machine { name, state, .. } in &hypervisor.machines {
                assert_eq!(
                    *state == MachineState::Dead,
                    is_down,
                    "VM {name}: {state:?}"
                );
            }
            let machines = hypervisor.machines.iter();
            self.states
                .extend(machines.map(|machine| format!("{:?}", machine.state)));
        }
        let others = world.others.into_iter();
        self.others
            .insert(others.map(|machine| machine.name).collect());
        self.live.look(lab, at)
    }
}

#[test]
fn a_whole_run_is_the_same_in_both_forms_and_takes_its_time() {
    let mut lines = Plain(Vec::new());
    play(7, &mut lines).unwrap();
    let plain = String::from_utf8(lines.0).unwrap();

    let waited = Cell::new(Duration::ZERO);
    let mut watched = Watched {
        live: live(|time| {
            waited.set(waited.get() + time);
            Ok(None)
        }),
        states: BTreeSet::new(),
        others: BTreeSet::new(),
    };
    play(7, &mut watched).unwrap();
    let Watched {
        live,
        states,
        others,
    } = watched;

    let end = live.end.clone().unwrap();
    let told: Vec<_> = live.picture.told.iter().map(|told| &*told.text).collect();
    assert!(told.len() < TOLD_MAX, "some is forgotten: compare less");
    for scene in live.picture.told.iter().filter(|told| told.scene) {
        let (_, announced) = scene.text.split_once("── ").unwrap();
        assert!(announced.len() < 80, "more than one line: {announced}");
    }
    let live_as_lines: Vec<_> = told.into_iter().chain(end.trim_start().lines()).collect();
    let plain_lines: Vec<_> = plain.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(live_as_lines, plain_lines);
    assert!(plain.ends_with(&format!("{end}\n")));
    assert!(shown(&live).contains("placements rejected"));

    for state in [
        "Online", "Offline", "Cloning", "Booting", "Ready", "Dead", "Draining", "Going",
    ] {
        assert!(states.contains(state), "{state} was never seen: {states:?}");
    }
    // The last picture shows what the summary counts.
    let Picture { world, summary, .. } = &live.picture;
    let summary = summary.as_ref().unwrap();
    let shown = world.hypervisors.iter().map(|it| it.machines.len());
    assert_eq!(shown.sum::<usize>(), summary.machines_left);
    assert_eq!((world.pods, world.pods.all), (summary.load, 4));
    assert_eq!(summary.seen.created, summary.seen.destroyed);

    // Neither before a machine's Node is known nor after its VM is gone is that Node somebody else's.
    assert_eq!(
        others,
        [vec!["agent-1".to_owned(), "server-1".to_owned()]].into()
    );

    let minute = Duration::from_secs(40)..Duration::from_secs(75);
    let played = waited.get() - STAY;
    assert!(minute.contains(&played), "{played:?} is not about a minute");
}
