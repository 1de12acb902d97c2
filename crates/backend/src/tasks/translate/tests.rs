use super::*;

fn json(text: &str) -> Json {
    Json::parse(text.to_owned().into(), 16).unwrap()
}

fn is(translated: &Json, expected: &str) {
    assert_eq!(translated.as_text(), expected);
}

#[test]
fn extension_task_is_wrapped_for_2025_11_25() {
    let flat = r#"{"resultType":"task", "taskId" : "\u0041","status":"working","ttlMs":6e4,"x":1.0,"pollIntervalMs": 5,"_meta":{ "m":1.0 }}"#;
    is(
        &created_to_legacy(&json(flat)),
        r#"{"task":{ "taskId" : "\u0041","status":"working","ttl":6e4,"x":1.0,"pollInterval": 5},"_meta":{ "m":1.0 }}"#,
    );
    is(
        &created_to_legacy(&json(r#"{"taskId":"a","resultType":"task","ttlMs":null}"#)),
        r#"{"task":{"taskId":"a","ttl":null}}"#,
    );
}

#[test]
fn wrapped_task_is_unwrapped_for_the_extension() {
    let wrapped = r#"{ "_meta":{"m":1.0},"task":{ "taskId" : "\u0041","ttl":6e4,"pollInterval": 5,"x":[1.0]},"y":1E2 }"#;
    is(
        &created_to_extension(&json(wrapped)).unwrap(),
        r#"{ "_meta":{"m":1.0},"y":1E2,"resultType":"task", "taskId" : "\u0041","ttlMs":6e4,"pollIntervalMs": 5,"x":[1.0]}"#,
    );
    // `ttlMs` is required there, and no member may occur twice.
    is(
        &created_to_extension(&json(
            r#"{"task":{"_meta":{},"taskId":"a"},"_meta":{"b":1}}"#,
        ))
        .unwrap(),
        r#"{"_meta":{"b":1},"resultType":"task","taskId":"a","ttlMs":null}"#,
    );
    for plain in [r#"{"content":[]}"#, r#"{"task":7}"#] {
        assert!(created_to_extension(&json(plain)).is_none(), "{plain}");
    }
}

#[test]
fn inlined_members_are_removed_from_a_task() {
    let detailed = r#"{"resultType":"complete","taskId":"a","status":"completed","x":1.0,"ttlMs":1,"result":{"content":[]},"_meta":{}}"#;
    is(
        &task_to_legacy(&json(detailed)),
        r#"{"taskId":"a","status":"completed","x":1.0,"ttl":1,"_meta":{}}"#,
    );
    let failed = r#"{"taskId":"a","status" : "completed","ttlMs":1,"result":{"isError":true}}"#;
    is(
        &task_to_legacy(&json(failed)),
        r#"{"taskId":"a","status" : "failed","ttl":1}"#,
    );
    let asking = r#"{"taskId":"a","status":"input_required","ttlMs":1,"inputRequests":{"k":{}}}"#;
    is(
        &task_to_legacy(&json(asking)),
        r#"{"taskId":"a","status":"input_required","ttl":1}"#,
    );
}

#[test]
fn outcome_is_inlined_into_a_task() {
    let task = json(r#"{ "taskId":"a","status":"failed","ttl":null,"pollInterval":7,"x":1.0}"#);
    is(
        &task_to_extension(&task, &Inlined::Nothing),
        r#"{ "taskId":"a","status":"failed","ttlMs":null,"pollIntervalMs":7,"x":1.0}"#,
    );
    is(
        &task_to_extension(&task, &Inlined::Result(json(r#"{ "n":1.0}"#))),
        r#"{ "taskId":"a","status":"completed","ttlMs":null,"pollIntervalMs":7,"x":1.0,"result":{ "n":1.0}}"#,
    );
    is(
        &task_to_extension(&task, &Inlined::Error(json(r#"{"code":-1}"#))),
        r#"{ "taskId":"a","status":"failed","ttlMs":null,"pollIntervalMs":7,"x":1.0,"error":{"code":-1}}"#,
    );
    let task = json(r#"{"taskId":"a","status":"input_required","ttl":1}"#);
    let asking = task_to_extension(&task, &Inlined::InputRequests(json(r#"{"k":{}}"#)));
    is(
        &asking,
        r#"{"taskId":"a","status":"input_required","ttlMs":1,"inputRequests":{"k":{}}}"#,
    );
    is(
        &complete(&asking),
        r#"{"taskId":"a","status":"input_required","ttlMs":1,"inputRequests":{"k":{}},"resultType":"complete"}"#,
    );
    is(&without_type(&complete(&asking)), asking.as_text());
}

#[test]
fn member_with_the_new_name_is_replaced() {
    is(
        &task_to_legacy(&json(r#"{"ttl":1,"taskId":"a","ttlMs":2}"#)),
        r#"{"taskId":"a","ttl":2}"#,
    );
    is(
        &task_to_extension(
            &json(r#"{"ttl":1,"taskId":"a","ttlMs":2}"#),
            &Inlined::Nothing,
        ),
        r#"{"ttlMs":1,"taskId":"a"}"#,
    );
    // A member of the other dialect keeps its name.
    is(&task_to_legacy(&json(r#"{"ttl":1}"#)), r#"{"ttl":1}"#);
}

#[test]
fn task_request_is_added_and_removed() {
    is(
        &with_task(Some(&json(r#"{ "name":"a","n":1.0 }"#))),
        r#"{ "name":"a","n":1.0,"task":{}}"#,
    );
    is(
        &with_task(Some(&json(r#"{"task":{"ttl":1.0}}"#))),
        r#"{"task":{"ttl":1.0}}"#,
    );
    is(&with_task(None), r#"{"task":{}}"#);
    is(
        &without_task(&json(r#"{ "task":{"ttl":1}, "name":"a"}"#)),
        r#"{ "name":"a"}"#,
    );
}

#[test]
fn extension_is_declared_once() {
    let own = r#""io.modelcontextprotocol/tasks":{}"#;
    is(
        &with_extension(&Json::empty_object()),
        &format!(r#"{{"extensions":{{{own}}}}}"#),
    );
    is(
        &with_extension(&json(r#"{ "roots":{} , "extensions" : { "x":{"n":1.0}} }"#)),
        &format!(r#"{{ "roots":{{}} , "extensions" : {{{own}, "x":{{"n":1.0}}}} }}"#),
    );
    is(
        &with_extension(&json(r#"{"extensions":null}"#)),
        &format!(r#"{{"extensions":{{{own}}}}}"#),
    );
    let declared = format!(r#"{{"extensions":{{{own}}}}}"#);
    is(&with_extension(&json(&declared)), &declared);
}

#[test]
fn related_task_is_named_once() {
    let id = Json::literal(r#""\u0041""#);
    let own = r#""io.modelcontextprotocol/related-task":{"taskId":"\u0041"}"#;
    is(
        &with_related_task(&Json::empty_object(), &id),
        &format!(r#"{{"_meta":{{{own}}}}}"#),
    );
    is(
        &with_related_task(&json(r#"{ "_meta" : { "x":1.0 } ,"n":1.0 }"#), &id),
        &format!(r#"{{ "_meta" : {{{own}, "x":1.0 }} ,"n":1.0 }}"#),
    );
    is(
        &with_related_task(&json(r#"{"_meta":{}}"#), &id),
        &format!(r#"{{"_meta":{{{own}}}}}"#),
    );
    let named = r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"other"}}}"#;
    is(&with_related_task(&json(named), &id), named);
}

#[test]
fn unknown_status_is_not_terminal() {
    for (text, status, terminal) in [
        ("working", Status::Working, false),
        ("input_required", Status::InputRequired, false),
        ("completed", Status::Completed, true),
        ("failed", Status::Failed, true),
        ("cancelled", Status::Cancelled, true),
        ("paused", Status::Working, false),
    ] {
        let found = Status::read(&json(&format!(r#"{{"status":"{text}"}}"#)));
        assert_eq!((found, found.is_terminal()), (status, terminal), "{text}");
    }
    assert_eq!(Status::read(&Json::empty_object()), Status::Working);
}
