//! Which of some names a mistyped one was probably meant to be.

/// Longer names are compared by their beginnings.
const LENGTH_MAX: usize = 64;

/// The candidate with the fewest differing letters, if they are few enough to be a slip of the hand:
/// at most a third of the name. The first of equals. Case does not count.
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
