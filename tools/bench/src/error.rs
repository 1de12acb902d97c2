//! Errors of a measurement, each a sentence for the person who runs the benchmark.

use std::io;
use std::path::PathBuf;

use tokio::task::JoinSet;

/// The reason of a failed measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// An operating system error.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A peer closed a connection or a pipe before its answer was complete.
    #[error("{0} closed the connection before its answer was complete")]
    Closed(&'static str),
    /// An answer had other bytes than expected.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// An answer was an error response.
    #[error("refused: {0}")]
    Refused(String),
    /// A system under test lacks this feature; its row is left out, and the report says so.
    #[error("{0}")]
    Unsupported(String),
    /// A time limit ran out.
    #[error("{what}: timed out after {seconds} s")]
    Late { what: String, seconds: u64 },
    /// A program to measure is not installed.
    #[error("{program} was not found: {hint}", program = .program.display())]
    Missing {
        program: PathBuf,
        hint: &'static str,
    },
    /// A signal asked the program to stop.
    #[error("interrupted")]
    Interrupted,
    /// The regression check found more instructions than the budget allows.
    #[error("{0} of the counts are over their budget")]
    OverBudget(usize),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

pub(crate) type Result<T> = std::result::Result<T, BenchError>;

/// Adds the current activity to an operating system error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| BenchError::Io {
            what: what.into(),
            source: source.into(),
        })
    }
}

/// Waits for `future` at most `seconds`.
pub(crate) async fn within<T>(
    what: &str,
    seconds: u64,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(std::time::Duration::from_secs(seconds), future).await {
        Ok(done) => done,
        Err(_) => Err(BenchError::Late {
            what: what.to_owned(),
            seconds,
        }),
    }
}

/// The results of all tasks, in the order in which they end, within `seconds`; the first error ends
/// the wait.
pub(crate) async fn join_all<T: 'static>(
    what: &str,
    seconds: u64,
    mut tasks: JoinSet<Result<T>>,
) -> Result<Vec<T>> {
    let all = async {
        let mut results = Vec::with_capacity(tasks.len());
        while let Some(done) = tasks.join_next().await {
            results.push(done.map_err(|error| BenchError::Other(error.to_string()))??);
        }
        Ok(results)
    };
    within(what, seconds, all).await
}
