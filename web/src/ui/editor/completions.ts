/** Which members may stand at a place of a spec, from the API's own schema of it. */

import type { Completion } from "@codemirror/autocomplete";

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  oneOf?: Schema[];
  items?: Schema;
  enum?: string[];
}

let schemas: Record<string, Schema> = {};

/** Reads the API's description once; without it there are no suggestions, and all else works. */
export async function loadSchemas(): Promise<void> {
  if (Object.keys(schemas).length > 0) return;
  const response = await fetch("/openapi.json");
  if (!response.ok) return;
  const document = (await response.json()) as { components: { schemas: Record<string, Schema> } };
  schemas = document.components.schemas;
}

/** What stands at a place: all forms that it may take, without the lists and references around them. */
function resolveSchema(schema: Schema | undefined): Schema[] {
  if (!schema) return [];
  if (schema.$ref) return resolveSchema(schemas[schema.$ref.split("/").at(-1) ?? ""]);
  if (schema.oneOf) return schema.oneOf.flatMap(resolveSchema);
  if (schema.items) return resolveSchema(schema.items);
  return [schema];
}

/** The keys above a line that is indented by so many spaces, outermost first. */
export function pathAbove(lines: readonly string[], indent: number): string[] {
  const path: string[] = [];
  let limit = indent;
  for (let i = lines.length - 1; i >= 0 && limit > 0; i -= 1) {
    const [, spaces = "", key] = /^(\s*(?:- )?)"?([\w.-]+)"?\s*:/.exec(lines[i] ?? "") ?? [];
    if (!key || spaces.length >= limit) continue;
    path.unshift(key);
    limit = spaces.length;
  }
  return path;
}

/** The specs that are written by hand. */
export type SpecName = "JobSpec" | "ScheduleSpec" | "CalendarSpec" | "WorkflowSpec";

export function completions(root: SpecName, lines: readonly string[], indent: number): Completion[] {
  let at: Schema[] = resolveSchema(schemas[root]);
  for (const key of pathAbove(lines, indent))
    at = at.flatMap((schema) => resolveSchema(schema.properties?.[key]));
  return at.flatMap((schema) =>
    Object.entries(schema.properties ?? {}).map(([key, member]) => ({
      label: key,
      apply: `${key}: `,
      detail: (member.description ?? resolveSchema(member)[0]?.description ?? "")
        .split("\n")[0]
        ?.slice(0, 80),
    })),
  );
}
