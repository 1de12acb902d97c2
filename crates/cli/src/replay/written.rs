//! The report of a replay for systems that show test results: JUnit's XML.

use std::fmt::Write as _;

use fanlight_canonical::comparison::Difference;
use fanlight_credentials::escaped_html;
use fanlight_protocol::visible::escaped;

use super::report::{Case, Report};
use crate::failure::Result;

/// Writes the report to the file that the command line names, if it names one.
pub(super) fn write(report: &Report<'_>) -> Result {
    let Some(file) = &report.args.junit else {
        return Ok(());
    };
    let written = std::fs::write(file, junit(report));
    written.map_err(|error| failure!("cannot write {}: {error}", file.display()))
}

/// The report in JUnit's XML.
fn junit(report: &Report<'_>) -> String {
    let least = report.args.fail_on.severity();
    let fails = |one: &&Difference| one.change.severity() >= least;
    let count = |is_counted: &dyn Fn(&Case) -> bool| {
        report.cases.iter().filter(|case| is_counted(case)).count()
    };
    let failed = count(&|case| case.differences.iter().any(|one| fails(&one)));
    let skipped = count(&|case| case.skipped.is_some());
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a text cannot fail.
    let _ = writeln!(
        out,
        "<testsuites><testsuite name=\"fanlight replay\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\">",
        report.cases.len()
    );
    for case in &report.cases {
        let _ = write!(
            out,
            "<testcase classname=\"{}\" name=\"{}\">",
            xml(&case.what),
            xml(&report.title(case))
        );
        if let Some(why) = report.reason(case) {
            let _ = write!(out, "<skipped message=\"{}\"/>", xml(&why));
        }
        let (failures, others): (Vec<_>, Vec<_>) = case.differences.iter().partition(fails);
        if let Some(first) = failures.first() {
            let (kind, message) = (first.change.name(), xml(&report.line(first)));
            let lines = failures.iter().map(|one| xml(&report.line(one)) + "\n");
            let _ = write!(
                out,
                "<failure type=\"{kind}\" message=\"{message}\">{}</failure>",
                lines.collect::<String>()
            );
        }
        if !others.is_empty() {
            let lines = others.iter().map(|one| xml(&report.line(one)) + "\n");
            let _ = write!(
                out,
                "<system-out>{}</system-out>",
                lines.collect::<String>()
            );
        }
        out += "</testcase>\n";
    }
    out + "</testsuite></testsuites>\n"
}

/// A text for XML. Characters that XML cannot have are escaped as everywhere.
fn xml(text: &str) -> String {
    escaped_html(&escaped(text)).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
