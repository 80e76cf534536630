//! The tasks that make a simulated cluster live.

use tokio::task::JoinSet;

use super::{
    Kube,
    controllers::{self, Patience},
    scheduler::{self, Scoring},
};

/// Scheduler, controllers and whatever else belongs to a cluster. Dropping it stops them all; the objects stay.
#[derive(Debug)]
pub struct World {
    tasks: JoinSet<()>,
}

impl World {
    /// Starts the scheduler and the controllers. Must be called inside a tokio runtime.
    pub fn start(kube: &Kube, scoring: Scoring, patience: Patience) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(controllers::run(kube.clone(), patience));
        tasks.spawn(scheduler::run(kube.clone(), scoring));
        Self { tasks }
    }

    /// Adds a task that lives as long as the world, e.g. the kubelets'.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}
