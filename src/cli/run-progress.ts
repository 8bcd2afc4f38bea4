import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { findRun, type Run } from '../events/runs.ts'
import { countRunEmails, type RunEmails } from '../ops/run-queries.ts'
import { countText } from '../ops/words.ts'
import type { OutputOptions } from './output.ts'
import { createProgress } from './progress.ts'
import type { Conversation } from './terminal.ts'

export interface Watched {
  run: Run
  emails: RunEmails
  /** `stalled`: nothing moved for so long that it is no use to wait. */
  end: 'done' | 'stopped' | 'interrupted' | 'stalled'
}

export interface WatchOptions {
  lookEveryMs?: number
  stalledAfterMs?: number
}

/**
 * Watches a run until its events are processed and their emails are out, and says how far it is. It only looks: whoever stops watching
 * stops nothing.
 */
export async function watchRun(
  pool: pg.Pool,
  id: string,
  { interrupted, ...conversation }: Conversation & OutputOptions,
  { lookEveryMs = 500, stalledAfterMs = 60_000 }: WatchOptions = {},
): Promise<Watched | undefined> {
  const progress = createProgress(`replay ${id.slice(0, 8)}`, conversation)
  let movedAt = performance.now()
  let last = ''
  try {
    for (;;) {
      const run = await findRun(pool, id)
      if (!run) return undefined
      const emails = await countRunEmails(pool, id)
      const waiting = run.statuses.pending ?? 0
      const state = JSON.stringify([run.done, waiting, emails])
      if (state !== last) movedAt = performance.now()
      last = state
      const found = { run, emails }
      if (interrupted?.aborted) return { ...found, end: 'interrupted' }
      if (run.state !== 'running' && waiting === 0 && emails.waiting === 0)
        return { ...found, end: run.state === 'stopped' ? 'stopped' : 'done' }
      if (performance.now() - movedAt > stalledAfterMs) return { ...found, end: 'stalled' }
      progress.show(run.done - waiting, run.events, `${countText(emails.sent)} sent  ${countText(failuresOf(found))} failed`)
      await sleep(lookEveryMs, undefined, { ...(interrupted && { signal: interrupted }) }).catch(() => undefined)
    }
  } finally {
    progress.clear()
  }
}

/** Events whose rules failed, and emails that were refused. */
export const failuresOf = ({ run, emails }: Pick<Watched, 'run' | 'emails'>): number =>
  (run.statuses.failed ?? 0) + emails.refused
