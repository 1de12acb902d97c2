//! Tasks as raw text, in both dialects: 2025-11-25 tasks, and the extension
//! `io.modelcontextprotocol/tasks`.

use super::Era;

/// One state of a task.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The task id.
    pub id: &'a str,
    /// The status on the wire: `working`, `input_required`, `completed`, `failed` or `cancelled`.
    pub status: &'a str,
    /// Its lifetime, in milliseconds.
    pub ttl: u32,
    /// The poll interval, in milliseconds.
    pub poll: u32,
}

impl Task<'_> {
    /// The raw members without braces.
    pub fn members(&self, era: Era) -> String {
        let Self {
            id,
            status,
            ttl,
            poll,
        } = self;
        let (ttl_name, poll_name) = match era {
            Era::Legacy => ("ttl", "pollInterval"),
            Era::Modern => ("ttlMs", "pollIntervalMs"),
        };
        format!(
            r#""taskId":"{id}","status":"{status}","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:01Z","{ttl_name}":{ttl},"{poll_name}":{poll}"#
        )
    }

    /// The result of a call that runs as a task.
    pub fn created(&self, era: Era) -> String {
        match era {
            Era::Legacy => format!(r#"{{"task":{{{}}}}}"#, self.members(era)),
            Era::Modern => format!(r#"{{"resultType":"task",{}}}"#, self.members(era)),
        }
    }

    /// The result of `tasks/get`. `more` are this status's members in the extension (`result`,
    /// `error`, `inputRequests`), raw and without braces.
    pub fn got(&self, era: Era, more: &str) -> String {
        let comma = if more.is_empty() { "" } else { "," };
        era.complete(&format!("{}{comma}{more}", self.members(era)))
    }

    /// The notification of a new status.
    pub fn notification(&self, era: Era, more: &str) -> String {
        let comma = if more.is_empty() { "" } else { "," };
        let method = match era {
            Era::Legacy => "notifications/tasks/status",
            Era::Modern => "notifications/tasks",
        };
        let params = format!("{}{comma}{more}", self.members(era));
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#)
    }
}
