//! The content of the "workshop": units, dice, a tool that fails.

use serde_json::{Value, json};

use crate::rpc::{Call, RpcError};

pub(crate) const INSTRUCTIONS: &str = "Small tools: `convert_units` converts lengths and weights, `roll_dice` rolls \
    dice (the same seed rolls the same), `fail` shows how a tool error looks.";

const UNITS_URI: &str = "workshop://units";
pub(crate) const MAX_DICE: u64 = 100;
pub(crate) const MAX_SIDES: u64 = 1000;

enum Quantity {
    Length,
    Weight,
}

/// A unit and its size in the quantity's base unit (metre, kilogram).
struct Unit(&'static str, Quantity, f64);

const UNITS: [Unit; 8] = [
    Unit("m", Quantity::Length, 1.0),
    Unit("km", Quantity::Length, 1000.0),
    Unit("ft", Quantity::Length, 0.3048),
    Unit("mi", Quantity::Length, 1609.344),
    Unit("kg", Quantity::Weight, 1.0),
    Unit("g", Quantity::Weight, 0.001),
    Unit("lb", Quantity::Weight, 0.453_592_37),
    Unit("oz", Quantity::Weight, 0.028_349_523_125),
];

/// The lists by the members of their results, and `serverInfo`.
pub(crate) const DEFINITIONS: &str = include_str!("workshop.json");

pub(crate) fn call_tool(call: &Call) -> Result<Value, RpcError> {
    match call.text("name")? {
        "convert_units" => Ok(tool_result(convert_units(call))),
        "roll_dice" => Ok(tool_result(roll_dice(call))),
        "fail" => {
            let reason = call
                .argument("reason")
                .as_str()
                .unwrap_or("this tool always fails");
            Ok(tool_result(Err(reason.to_owned())))
        }
        name => Err(RpcError::invalid_params(format!("Unknown tool: {name}"))),
    }
}

/// The result of a tool. Its own failures, such as bad arguments, are results, so that a model can
/// read and correct them (2026-07-28 server/tools, Error Handling).
fn tool_result(outcome: Result<Value, String>) -> Value {
    match outcome {
        Ok(structured) => json!({
            "content": [{ "type": "text", "text": structured.to_string() }],
            "structuredContent": structured,
            "isError": false,
        }),
        Err(reason) => json!({ "content": [{ "type": "text", "text": reason }], "isError": true }),
    }
}

fn convert_units(call: &Call) -> Result<Value, String> {
    let value = call
        .argument("value")
        .as_f64()
        .ok_or("`value` must be a number")?;
    let Unit(_, from, from_factor) = unit(call, "from")?;
    let Unit(name, to, to_factor) = unit(call, "to")?;
    match (from, to) {
        (Quantity::Length, Quantity::Length) | (Quantity::Weight, Quantity::Weight) => {
            Ok(json!({ "value": value * from_factor / to_factor, "unit": name }))
        }
        _ => Err("a length cannot be converted to a weight, nor a weight to a length".to_owned()),
    }
}

fn unit(call: &Call, argument: &str) -> Result<&'static Unit, String> {
    let name = call.argument(argument);
    UNITS
        .iter()
        .find(|unit| name == unit.0)
        .ok_or_else(|| format!("`{argument}` must be one of {}", unit_names().join(", ")))
}

pub(crate) fn unit_names() -> Vec<&'static str> {
    UNITS.iter().map(|unit| unit.0).collect()
}

fn roll_dice(call: &Call) -> Result<Value, String> {
    let count = call.whole_number("", "count", 2, 1..=MAX_DICE)?;
    let sides = call.whole_number("", "sides", 6, 2..=MAX_SIDES)?;
    // A generated seed stays exact for clients that read numbers as IEEE 754 doubles.
    let seed = call.whole_number("", "seed", fastrand::u64(..1 << 53), 0..=u64::MAX)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let rolls: Vec<u64> = (0..count).map(|_| random.u64(1..=sides)).collect();
    Ok(json!({ "total": rolls.iter().sum::<u64>(), "rolls": rolls, "sides": sides, "seed": seed }))
}

pub(crate) fn read_resource(call: &Call) -> Result<Value, RpcError> {
    let uri = call.text("uri")?;
    if uri != UNITS_URI {
        return Err(RpcError::invalid_params("Resource not found").with_data(json!({ "uri": uri })));
    }
    let factors: serde_json::Map<String, Value> = UNITS
        .iter()
        .map(|unit| (unit.0.to_owned(), json!(unit.2)))
        .collect();
    let text = Value::Object(factors).to_string();
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": "application/json", "text": text }] }))
}

pub(crate) fn get_prompt(call: &Call) -> Result<Value, RpcError> {
    let name = call.text("name")?;
    if name != "plan_build" {
        return Err(RpcError::invalid_params(format!("Unknown prompt: {name}")));
    }
    let what = call.text_argument("what")?;
    let text = format!("Plan how to build {what}: material, cuts in millimetres, order of work.");
    Ok(json!({
        "description": "A plan",
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
    }))
}

pub(crate) fn complete(call: &Call) -> Result<Value, RpcError> {
    const BUILDS: [&str; 4] = ["a bench", "a birdhouse", "a bookcase", "a table"];
    let argument = &call.params["argument"];
    if call.params["ref"]["name"] != "plan_build" || argument["name"] != "what" {
        return Err(RpcError::invalid_params(
            "nothing here completes this `ref` and `argument`",
        ));
    }
    let prefix = call.value_to_complete()?;
    let values: Vec<&str> = BUILDS
        .into_iter()
        .filter(|build| build.starts_with(prefix))
        .collect();
    Ok(json!({ "completion": { "values": values, "total": values.len(), "hasMore": false } }))
}
