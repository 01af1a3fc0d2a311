/** Limits page reloads after failed chunk loads. */

/** Key of a JSON list with the builds and chunks that have caused a reload. */
const RELOADED_KEY = "belfry.reloaded";

type ReloadStorage = Pick<Storage, "getItem" | "setItem">;

/**
 * Returns whether the page may be reloaded because `chunk` of `build` is missing; records the reload if so.
 *
 * Each chunk of a build reloads the page once. A chunk that is never available must not cause endless reloads, nor
 * must servers of two versions that answer in turn. `build` is part of the key because some browsers do not name the
 * chunk.
 */
export function mayReload(storage: ReloadStorage, build: string, chunk: string): boolean {
  const name = `${build} ${chunk}`;
  try {
    const reloaded = JSON.parse(storage.getItem(RELOADED_KEY) ?? "[]") as unknown;
    const names = Array.isArray(reloaded) ? (reloaded as unknown[]) : [];
    if (names.includes(name)) return false;
    storage.setItem(RELOADED_KEY, JSON.stringify([...names, name]));
    return true;
  } catch {
    // Without session storage, nothing would end the reloads.
    return false;
  }
}
