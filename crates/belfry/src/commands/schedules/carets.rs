//! Adds the expression and a caret to an error of a cron expression, at the column that the error names.

use model::timing::{Cron, Filter, Rule, Timing};

use crate::failure::Failure;

/// Adds the expression and a caret below it to each field error that names a column.
///
/// `find` returns the expression at the path of a field.
pub(crate) fn with_carets(mut failure: Failure, find: impl Fn(&str) -> Option<String>) -> Failure {
    let fields = std::mem::take(failure.fields_mut());
    for field in &fields {
        if let (Some(column), Some(expression)) = (column(&field.detail), find(&field.path)) {
            failure.excerpt(&field.path, pointed(&expression, column));
        }
    }
    *failure.fields_mut() = fields;
    failure
}

/// Parses the number in `at column 7: …`.
fn column(detail: &str) -> Option<usize> {
    let (_, rest) = detail.split_once("at column ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|column| *column > 0)
}

fn pointed(expression: &str, column: usize) -> Vec<String> {
    vec![expression.to_owned(), format!("{}^", " ".repeat(column - 1))]
}

/// Returns the cron expression at a path within a timing, such as `rules[0].cron`.
pub(crate) fn expression(timing: &Timing, path: &str) -> Option<String> {
    let path = path.rsplit_once("timing.").map_or(path, |(_, path)| path);
    let (list, rest) = path.split_once('[')?;
    let (index, _) = rest.split_once(']')?;
    let index: usize = index.parse().ok()?;
    let of = |cron: &Cron| cron.expression.clone();
    let filter = |filters: &[Filter]| match filters.get(index) {
        Some(Filter::Cron(cron)) => Some(of(cron)),
        _ => None,
    };
    match list {
        "rules" => match timing.rules.get(index) {
            Some(Rule::Cron(cron)) => Some(of(cron)),
            _ => None,
        },
        "only" => filter(&timing.only),
        "exclude" => filter(&timing.exclude),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use model::api::FieldError;

    use super::*;

    #[test]
    fn a_caret_stands_below_the_place_that_the_message_names() {
        let timing = Timing { rules: vec![Rule::Cron(Cron::new("0 60 * * *"))], ..Timing::default() };
        let field = FieldError {
            pointer: String::new(),
            path: "timing.rules[0].cron".into(),
            detail: "at column 3: found `60`, expected an hour from 0 to 23".into(),
        };
        let failure = Failure::usage("invalid timing").fields(vec![field]);
        let failure = with_carets(failure, |path| expression(&timing, path));
        insta::assert_snapshot!(failure.render(false), @r"
        error: invalid timing
          timing.rules[0].cron: at column 3: found `60`, expected an hour from 0 to 23
              0 60 * * *
                ^
        ");
    }

    #[test]
    fn a_path_that_leads_to_no_expression_points_nowhere() {
        let timing = Timing { rules: vec![Rule::At("soon".into())], ..Timing::default() };
        for path in ["rules[0].at", "rules[7].cron", "only[0].cron", "zone", "rules[x]", ""] {
            assert_eq!(expression(&timing, path), None, "{path}");
        }
        assert_eq!(column("expected an hour"), None);
    }
}
