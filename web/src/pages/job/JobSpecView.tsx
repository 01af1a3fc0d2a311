/** The job's spec as YAML. */

import { CodeHighlight } from "../../ui/Code";
import { toYaml } from "../../lib/spec";
import type { JobSpec } from "../../api/schema";

export function JobSpecView({ spec }: { spec: JobSpec }) {
  return <CodeHighlight text={toYaml(spec)} />;
}
