/** Doing something: with a word of what came of it, or of why not. */

import { Button, Group } from "@mantine/core";
import { notifications } from "@mantine/notifications";

import { isTakeOver, Refusal } from "../api/problem";
import i18n from "../i18n";
import { copyText } from "../lib/clipboard";
import { wordsOf } from "./problem";

/** Says that something was done; with where to see it, if there is such a place. */
export function say(message: string, go?: { label: string; run: () => void } | null): void {
  const id = notifications.show({
    color: "ink",
    withBorder: true,
    message: go ? (
      <Group justify="space-between" gap="md">
        {message}
        <Button
          variant="default"
          onClick={() => {
            notifications.hide(id);
            go.run();
          }}
        >
          {go.label}
        </Button>
      </Group>
    ) : (
      message
    ),
  });
}

/** Copies a text, and says so. */
export async function copy(text: string): Promise<void> {
  say(i18n.t((await copyText(text)) ? "common.copied" : "common.notCopied"));
}

/** Runs an action; shows what it says on success, and the refusal otherwise. */
export async function act<T>(action: () => Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await action();
    if (done) say(done);
    return result;
  } catch (error) {
    const refusal = Refusal.from(error);
    const { title, hint } = wordsOf(refusal, i18n.t);
    notifications.show({
      color: isTakeOver(refusal) ? "yellow" : "red",
      withBorder: true,
      autoClose: 10_000,
      title,
      message: [hint, refusal.code].filter(Boolean).join(" · "),
    });
    return undefined;
  }
}
