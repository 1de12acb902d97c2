//! No call runs without approval, and none runs twice on one approval.

use std::time::Duration;

use fanlight_canonical::identity::Principal;
use fanlight_protocol::Json;
use proptest::prelude::*;

use super::*;

const LIMITS: ApprovalLimits = ApprovalLimits {
    calls: 6,
    calls_of_one: 4,
    call_bytes: 200,
    lifetime: Duration::from_secs(600),
};

fn call(principal: &str, arguments: &str) -> CallToApprove {
    CallToApprove {
        principal: Principal::new("keys", principal),
        endpoint: "/mcp".into(),
        server: "files".into(),
        tool: "delete".into(),
        arguments: Some(Json::string(arguments)),
        own: None,
        more: None,
        rules: 1,
    }
}

fn question(approver: ApproverRule) -> Question {
    Question {
        text: "Really?".into(),
        client: "ann".into(),
        approver,
    }
}

async fn ask(approvals: &Approvals, call: CallToApprove) -> Result<Asked, NotAsked> {
    approvals.ask(call, question(ApproverRule::Any)).await
}

async fn waiting(approvals: &Approvals, call: CallToApprove) -> Waiting {
    match ask(approvals, call).await {
        Ok(Asked::Waiting(waiting)) => waiting,
        other => panic!("{other:?}"),
    }
}

fn approver(name: &str) -> Approver {
    Approver {
        name: name.into(),
        principal: Some(Principal::new("keys", name)),
        comparable: vec![vec!["keys".into()]],
    }
}

#[tokio::test]
async fn approved_call_goes_on_and_asks_anew_the_next_time() {
    let approvals = Approvals::new(LIMITS);
    let mut first = waiting(&approvals, call("ann", "a")).await;
    let decided = approvals
        .decide(first.id(), &approver("bob"), true)
        .await
        .unwrap();
    assert_eq!(
        (decided.status, decided.call),
        (Status::Approved("bob".into()), call("ann", "a"))
    );
    assert_eq!(first.answer().await, Ok(()));
    assert!(approvals.list().await.unwrap().is_empty());
    assert!(matches!(
        ask(&approvals, call("ann", "a")).await,
        Ok(Asked::Waiting(_))
    ));
}

#[tokio::test]
async fn call_that_could_not_wait_runs_once_when_it_is_sent_again() {
    let approvals = Approvals::new(LIMITS);
    let id = waiting(&approvals, call("ann", "a")).await.id().to_owned();
    assert!(!approvals.list().await.unwrap()[0].is_waiting);
    // The same call sent again before the answer is the same question.
    let again = waiting(&approvals, call("ann", "a")).await;
    assert_eq!(again.id(), id);
    drop(again);
    approvals.decide(&id, &approver("bob"), true).await.unwrap();
    assert!(
        matches!(ask(&approvals, call("ann", "a")).await, Ok(Asked::Approved { id: used }) if used == id)
    );
    assert!(
        matches!(
            ask(&approvals, call("ann", "a")).await,
            Ok(Asked::Waiting(_))
        ),
        "the approval was used up"
    );
}

#[tokio::test]
async fn approval_is_for_exactly_one_call() {
    let others = [
        call("bob", "a"),
        call("ann", "A"),
        CallToApprove {
            endpoint: "/other".into(),
            ..call("ann", "a")
        },
        CallToApprove {
            server: "disk".into(),
            ..call("ann", "a")
        },
        CallToApprove {
            tool: "erase".into(),
            ..call("ann", "a")
        },
        CallToApprove {
            arguments: None,
            ..call("ann", "a")
        },
        CallToApprove {
            rules: 2,
            ..call("ann", "a")
        },
        CallToApprove {
            own: Some(Json::string("b")),
            ..call("ann", "a")
        },
    ];
    for other in others {
        let approvals = Approvals::new(LIMITS);
        let id = waiting(&approvals, call("ann", "a")).await.id().to_owned();
        approvals.decide(&id, &approver("bob"), true).await.unwrap();
        assert!(matches!(
            ask(&approvals, other).await,
            Ok(Asked::Waiting(_))
        ));
        assert!(matches!(
            ask(&approvals, call("ann", "a")).await,
            Ok(Asked::Approved { .. })
        ));
    }
}

#[tokio::test]
async fn two_calls_need_two_approvals_even_if_they_are_the_same() {
    let approvals = Approvals::new(LIMITS);
    let (mut one, two) = (
        waiting(&approvals, call("ann", "a")).await,
        waiting(&approvals, call("ann", "a")).await,
    );
    assert_ne!(one.id(), two.id());
    approvals
        .decide(one.id(), &approver("bob"), true)
        .await
        .unwrap();
    // The approval belongs to the call that waits for it.
    assert_eq!(one.answer().await, Ok(()));
    assert_eq!(
        approvals
            .list()
            .await
            .unwrap()
            .iter()
            .map(|open| open.id.as_str())
            .collect::<Vec<_>>(),
        [two.id()]
    );
}

#[tokio::test]
async fn refused_call_does_not_ask_again_for_a_while() {
    let approvals = Approvals::new(LIMITS);
    let mut first = waiting(&approvals, call("ann", "a")).await;
    let id = first.id().to_owned();
    approvals
        .decide(&id, &approver("bob"), false)
        .await
        .unwrap();
    assert_eq!(first.answer().await, Err(NotApproved::Refused));
    assert!(
        matches!(ask(&approvals, call("ann", "a")).await, Err(NotAsked::Refused { id: of }) if of == id)
    );
    assert_eq!(
        approvals
            .decide(&id, &approver("eve"), true)
            .await
            .unwrap_err(),
        NotDecided::Decided("bob".into())
    );
}

#[tokio::test]
async fn second_approver_is_told_of_the_first() {
    let approvals = Approvals::new(LIMITS);
    let mut first = waiting(&approvals, call("ann", "a")).await;
    let id = first.id().to_owned();
    approvals.decide(&id, &approver("bob"), true).await.unwrap();
    assert_eq!(
        approvals
            .decide(&id, &approver("eve"), false)
            .await
            .unwrap_err(),
        NotDecided::Decided("bob".into())
    );
    assert_eq!(first.answer().await, Ok(()));
    assert_eq!(
        approvals
            .decide(&id, &approver("eve"), true)
            .await
            .unwrap_err(),
        NotDecided::Unknown
    );
}

#[tokio::test(start_paused = true)]
async fn question_and_approval_expire() {
    let approvals = Approvals::new(LIMITS);
    let mut first = waiting(&approvals, call("ann", "a")).await;
    let id = first.id().to_owned();
    assert_eq!(first.answer().await, Err(NotApproved::Over));
    assert_eq!(
        approvals
            .decide(&id, &approver("bob"), true)
            .await
            .unwrap_err(),
        NotDecided::Unknown
    );
    let id = waiting(&approvals, call("ann", "a")).await.id().to_owned();
    tokio::time::advance(LIMITS.lifetime / 2).await;
    approvals.decide(&id, &approver("bob"), true).await.unwrap();
    tokio::time::advance(LIMITS.lifetime).await;
    assert!(matches!(
        ask(&approvals, call("ann", "a")).await,
        Ok(Asked::Waiting(_))
    ));
}

#[tokio::test]
async fn rule_for_another_person_takes_nobody_who_may_be_the_caller() {
    let approvals = Approvals::new(LIMITS);
    let of = async |call| match approvals.ask(call, question(ApproverRule::Other)).await {
        Ok(Asked::Waiting(waiting)) => waiting.id().to_owned(),
        other => panic!("{other:?}"),
    };
    let anonymous = CallToApprove {
        principal: Principal::anonymous(),
        ..call("ann", "a")
    };
    let (named, anonymous) = (of(call("ann", "a")).await, of(anonymous).await);
    let nobody = Approver {
        principal: None,
        ..approver("not signed in")
    };
    let at = |issuer, name| Approver {
        principal: Some(Principal::new(issuer, name)),
        ..approver(name)
    };
    for (id, one) in [
        (&named, approver("ann")),
        // Ann may have a sign-in beside her key.
        (&named, at("https://id.example", "ann@example.com")),
        (&named, at("fanlight:proxy", "sue")),
        (&named, nobody.clone()),
        (&anonymous, approver("bob")),
    ] {
        assert_eq!(
            approvals.decide(id, &one, true).await.unwrap_err(),
            NotDecided::NotAnother,
            "{one:?}"
        );
    }
    // An approver of any identity may refuse.
    approvals.decide(&anonymous, &nobody, false).await.unwrap();
    approvals
        .decide(&named, &approver("bob"), true)
        .await
        .unwrap();
}

#[tokio::test]
async fn subjects_are_two_people_only_at_methods_that_can_be_compared() {
    const ISSUER: &str = "https://id.example";
    // The methods of the caller and the approver, and the sets that the operator has declared.
    for (caller, approver_at, sets, is_another) in [
        // Each client of an issuer may get another `sub`.
        (ISSUER, ISSUER, "key;proxy", false),
        (ISSUER, ISSUER, "https://id.example", true),
        (ISSUER, "https://id.example/", "https://id.example", false),
        ("fanlight:proxy", ISSUER, "proxy;https://id.example", false),
        ("fanlight:proxy", ISSUER, "proxy https://id.example", true),
        ("fanlight:key", ISSUER, "proxy https://id.example", false),
        ("fanlight:certificate", "fanlight:certificate", "key", false),
    ] {
        let call = CallToApprove {
            principal: Principal::new(caller, "pairwise-ann"),
            ..call("ann", "a")
        };
        let approvals = Approvals::new(LIMITS);
        let waiting = match approvals.ask(call, question(ApproverRule::Other)).await {
            Ok(Asked::Waiting(waiting)) => waiting,
            other => panic!("{other:?}"),
        };
        let of = |subject| Approver {
            principal: Some(Principal::new(approver_at, subject)),
            comparable: sets
                .split(';')
                .map(|set| set.split(' ').map(str::to_owned).collect())
                .collect(),
            ..approver(subject)
        };
        for (subject, is_approved) in [("Pairwise-Ann", false), ("ann-oid", is_another)] {
            let outcome = approvals.decide(waiting.id(), &of(subject), true).await;
            assert_eq!(
                outcome.is_ok(),
                is_approved,
                "{caller} {approver_at} {sets}"
            );
        }
    }
}

#[tokio::test]
async fn number_and_size_of_questions_are_limited_for_each_principal() {
    let approvals = Approvals::new(LIMITS);
    let too_large = call("ann", &"x".repeat(200));
    assert_eq!(
        ask(&approvals, too_large).await.unwrap_err(),
        NotAsked::TooLarge { limit: 200 }
    );
    let mut open = Vec::new();
    for number in 0..4 {
        open.push(waiting(&approvals, call("ann", &number.to_string())).await);
    }
    assert_eq!(
        ask(&approvals, call("ann", "more")).await.unwrap_err(),
        NotAsked::TooMany
    );
    open.push(waiting(&approvals, call("bob", "a")).await);
    open.push(waiting(&approvals, call("bob", "b")).await);
    assert_eq!(
        ask(&approvals, call("eve", "a")).await.unwrap_err(),
        NotAsked::TooMany
    );
    drop(open);
    assert_eq!(approvals.list().await.unwrap().len(), 6);
}

#[tokio::test]
async fn decided_questions_keep_nobody_from_asking() {
    let approvals = Approvals::new(LIMITS);
    for number in 0..20 {
        let asked = waiting(&approvals, call("ann", &number.to_string())).await;
        let id = asked.id().to_owned();
        drop(asked);
        let outcome = approvals
            .decide(&id, &approver("bob"), number % 2 == 0)
            .await;
        outcome.unwrap();
        assert!(approvals.list().await.unwrap().len() <= LIMITS.calls);
    }
    // The latest answers still count.
    assert!(matches!(
        ask(&approvals, call("ann", "18")).await,
        Ok(Asked::Approved { .. })
    ));
    assert!(matches!(
        ask(&approvals, call("ann", "19")).await,
        Err(NotAsked::Refused { .. })
    ));
}

/// Random events in the life of calls.
#[derive(Clone, Debug)]
enum Step {
    /// A client sends the call with these arguments.
    Send(u8),
    /// The client of this waiting call gives up.
    GiveUp(usize),
    /// This waiting call looks for its answer.
    Look(usize),
    /// An approver answers this question.
    Decide(usize, bool),
    NewRules,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8).prop_map(Step::Send),
        1 => (0..6_usize).prop_map(Step::GiveUp),
        3 => (0..6_usize).prop_map(Step::Look),
        4 => (0..6_usize, prop::bool::weighted(0.7)).prop_map(|(at, yes)| Step::Decide(at, yes)),
        1 => Just(Step::NewRules),
    ]
}

proptest! {
    /// Whatever happens in whichever order, a call runs no more often than it was approved under
    /// the rules of its time.
    #[test]
    fn no_call_runs_more_often_than_it_was_approved(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let approvals = Approvals::new(LIMITS);
            let (mut rules, mut open, mut approved, mut run) = (1, Vec::new(), Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Send(arguments) => {
                        let call = CallToApprove { rules, ..call("ann", &arguments.to_string()) };
                        match ask(&approvals, call.clone()).await {
                            Ok(Asked::Approved { .. }) => run.push(call),
                            Ok(Asked::Waiting(waiting)) => open.push((call, waiting)),
                            Err(_) => {}
                        }
                    }
                    Step::GiveUp(at) if at < open.len() => drop(open.remove(at)),
                    Step::Look(at) if at < open.len() => {
                        let (call, mut waiting) = open.remove(at);
                        if tokio::time::timeout(Duration::ZERO, waiting.answer()).await == Ok(Ok(())) {
                            run.push(call);
                        }
                    }
                    Step::Decide(at, is_approved) => {
                        let id = approvals.list().await.unwrap().get(at).map(|question| question.id.clone());
                        if let Some(id) = id
                            && let Ok(question) = approvals.decide(&id, &approver("bob"), is_approved).await
                        {
                            approved.extend(is_approved.then_some(question.call));
                        }
                    }
                    Step::NewRules => rules += 1,
                    Step::GiveUp(_) | Step::Look(_) => {}
                }
                for call in &run {
                    let count = |all: &[CallToApprove]| all.iter().filter(|one| *one == call).count();
                    assert!(count(&run) <= count(&approved), "{call:?}");
                }
            }
        });
    }
}

#[tokio::test]
async fn call_that_waits_is_woken_at_once() {
    let approvals = Approvals::new(LIMITS);
    let mut first = waiting(&approvals, call("ann", "a")).await;
    let id = first.id().to_owned();
    let answer = tokio::spawn(async move { first.answer().await });
    tokio::task::yield_now().await;
    assert!(approvals.list().await.unwrap()[0].is_waiting);
    approvals
        .decide(
            &id,
            &Approver {
                principal: None,
                ..approver("bob")
            },
            true,
        )
        .await
        .unwrap();
    assert_eq!(answer.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn next_round_of_an_approved_call_needs_no_approval_of_its_own_once() {
    let approvals = Approvals::new(LIMITS);
    let (one, two) = (Json::string("s1"), Json::string("s2"));
    approvals.continues("id", &call("ann", "a"), &one).await;
    for (other, state) in [
        (call("bob", "a"), &one),
        (call("ann", "b"), &one),
        (
            CallToApprove {
                rules: 2,
                ..call("ann", "a")
            },
            &one,
        ),
        (call("ann", "a"), &two),
    ] {
        assert_eq!(approvals.is_continued(&other, state).await, Ok(None));
    }
    assert_eq!(
        approvals
            .is_continued(&call("ann", "a"), &Json::literal(r#""s\u0031""#))
            .await,
        Ok(Some("id".to_owned()))
    );
    assert_eq!(
        approvals.is_continued(&call("ann", "a"), &one).await,
        Ok(None),
        "a state is good once"
    );
    approvals.continues("id", &call("ann", "a"), &one).await;
    tokio::time::advance(LIMITS.lifetime).await;
    assert_eq!(
        approvals.is_continued(&call("ann", "a"), &one).await,
        Ok(None),
        "it has expired"
    );
    for number in 0..=LIMITS.calls_of_one {
        approvals
            .continues("id", &call("ann", "a"), &Json::string(&number.to_string()))
            .await;
    }
    let last = Json::string(&LIMITS.calls_of_one.to_string());
    assert_eq!(
        approvals.is_continued(&call("ann", "a"), &last).await,
        Ok(None),
        "there are too many: it is asked about again"
    );
}
