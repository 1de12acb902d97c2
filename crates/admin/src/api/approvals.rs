//! `/api/approvals`: the calls that wait for approval, and the answers of approvers.

use axum::Extension;
use axum::extract::{Path, State};
use fanlight_gateway::approvals::{Approver, ApproverRule, NotDecided, OpenQuestion, Status};
use http::StatusCode;

use super::Answer;
use crate::{About, AdminState, Operator, Refusal, Role, answer, millis, moment};

answers! {
    /// Calls that need approval.
    pub(crate) struct Approvals {
        /// The calls, longest waiting first.
        approvals: Vec<Approval>,
    }

    /// A call that needs approval.
    struct Approval {
        /// The id for the answer.
        id: String,
        /// `open`, `approved` or `refused`.
        status: &'static str,
        /// The approver who has answered.
        decided_by: Option<String>,
        /// Whether the call itself waits; if not, its client has to send it again.
        waiting: bool,
        /// The rule's question.
        question: String,
        /// Whether somebody other than the caller has to approve.
        another_person: bool,
        /// The name of the client's identity.
        client: String,
        /// The caller's principal, with the issuer.
        principal: String,
        endpoint: String,
        server: String,
        /// The server's own name for the tool.
        tool: String,
        /// The text of `arguments`, as the server will get it; null if the call has none. An
        /// operator who may not approve sees it without values that the configuration adds.
        arguments: Option<String>,
        /// The text of an object with the other members of `params` that the server gets; null if
        /// there are none.
        more: Option<String>,
        asked_ms: f64,
        /// The time left to answer, or after an answer, the time for which it is valid.
        left_ms: f64,
    }

    /// An answer that has taken effect.
    pub(crate) struct Answered {
        /// The id of the question.
        id: String,
        /// `server/tool`.
        call: String,
        /// `approve` or `refuse`.
        done: String,
        /// Whether the call itself has waited for the answer; if not, its client has to send it
        /// again.
        waiting: bool,
    }
}

/// Lists all calls that need approval.
pub(super) async fn list(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
) -> Answer {
    let may_approve = operator.role >= Role::Approver;
    let approvals = admin
        .subject
        .approvals
        .list()
        .await?
        .into_iter()
        .map(|open| approval_view(open, may_approve))
        .collect();
    Ok(answer(&Approvals { approvals }))
}

/// Approves or refuses a call.
pub(super) async fn decide(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    Path((id, done)): Path<(String, String)>,
) -> Answer {
    let is_approved = match done.as_str() {
        "approve" => true,
        "refuse" => false,
        _ => {
            return Err(Refusal::not_found("the answer must be approve or refuse"));
        }
    };
    let approver = Approver {
        name: operator.name,
        principal: operator.principal,
        comparable: admin.now().settings.comparable.clone(),
    };
    let question = admin
        .subject
        .approvals
        .decide(&id, &approver, is_approved)
        .await?;
    let call = format!("{}/{}", question.call.server, question.call.tool);
    let about = format!("{call} for {}", question.call.principal.describe());
    let answer = answer(&Answered {
        id,
        call,
        done,
        waiting: question.is_waiting,
    });
    Ok(About(about).attach_to(answer))
}

fn approval_view(open: OpenQuestion, may_approve: bool) -> Approval {
    let OpenQuestion {
        id,
        call,
        question,
        asked,
        left,
        status,
        is_waiting,
    } = open;
    let (status, decided_by) = match status {
        Status::Open => ("open", None),
        Status::Approved(by) => ("approved", Some(by.to_string())),
        Status::Refused(by) => ("refused", Some(by.to_string())),
    };
    Approval {
        id,
        status,
        decided_by,
        waiting: is_waiting,
        question: question.text.to_string(),
        another_person: question.approver == ApproverRule::Other,
        client: question.client.to_string(),
        principal: call.principal.describe(),
        endpoint: call.endpoint.to_string(),
        server: call.server.into(),
        tool: call.tool.into(),
        arguments: if may_approve {
            call.arguments
        } else {
            call.own
        }
        .map(|arguments| arguments.as_text().to_owned()),
        more: call.more.map(|more| more.as_text().to_owned()),
        asked_ms: moment(asked),
        left_ms: millis(left),
    }
}

impl From<NotDecided> for Refusal {
    fn from(not_decided: NotDecided) -> Self {
        let status = match not_decided {
            NotDecided::Unknown => StatusCode::NOT_FOUND,
            NotDecided::Decided(_) => StatusCode::CONFLICT,
            NotDecided::NotAnother => StatusCode::FORBIDDEN,
            NotDecided::Away => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, not_decided.to_string())
    }
}
