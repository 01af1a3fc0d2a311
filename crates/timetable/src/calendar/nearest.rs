//! Suggestions for mistyped names.

/// Maximum number of compared characters; the rest of a longer name is ignored.
const LENGTH_MAX: usize = 64;

/// Returns the candidate with the smallest edit distance from `name`, ignoring case.
///
/// `None` if the distance of all candidates exceeds a third of the name, at least 1. The first one of equal candidates.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let beginning = |text: &str| text.chars().take(LENGTH_MAX).collect::<String>().to_lowercase();
    let name = beginning(name);
    let allowed = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, &beginning(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
