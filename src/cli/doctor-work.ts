import type { Work } from '../ops/health-queries.ts'
import type { ProcessRow } from '../ops/processes.ts'
import { durationText } from '../ops/words.ts'
import { type Check, skewOf } from './doctor-database.ts'

const SWEEP_LATE_SECONDS = 120
const WAITING_ATTENTION_SECONDS = 60
const WAITING_PROBLEM_SECONDS = 600

/** Who runs, and whether what is due is done. */
export function checkWork(work: Work): Check[] {
  const alive = work.processes.filter(({ is_alive }) => is_alive)
  const versions = [...new Set(alive.map(({ version }) => version))]
  return [
    checkKind('serve', alive, 'no serve runs: webhooks are not answered'),
    checkKind('worker', alive, 'no worker runs: events and sends wait'),
    ...checkSweep(alive),
    ...(versions.length > 1
      ? [
          {
            check: 'worker',
            level: 'attention',
            text: `processes of ${versions.length} versions run: ${versions.join(', ')}`,
          } as const,
        ]
      : []),
    ...alive.flatMap(
      ({ kind, host, pid, clock_ahead_ms: ahead }) => skewOf(`the clock of ${kind} ${pid} on ${host}`, ahead) ?? [],
    ),
    work.held_reason === null
      ? { check: 'sending', level: 'ok', text: 'sending runs' }
      : { check: 'sending', level: 'problem', text: `sending is held by ${work.held_by}: ${work.held_reason}` },
    work.matching === 'auto'
      ? { check: 'matching', level: 'ok', text: 'matching by recipient runs' }
      : { check: 'matching', level: 'attention', text: `matching by recipient only suggests: ${work.matching_reason}` },
    checkAge('event', work.oldest_event_seconds),
    // While sending is held they wait by intent, which is said above.
    ...(work.held_reason === null ? [checkAge('send', work.oldest_send_seconds)] : []),
  ]
}

function checkKind(kind: 'serve' | 'worker', alive: readonly ProcessRow[], none: string): Check {
  const count = alive.filter((it) => it.kind === kind).length
  return count === 0 ? { check: kind, level: 'problem', text: none } : { check: kind, level: 'ok', text: `${count} × ${kind}` }
}

function checkSweep(alive: readonly ProcessRow[]): Check[] {
  const workers = alive.filter(({ kind }) => kind === 'worker')
  if (workers.length === 0) return []
  const ages = workers.flatMap(({ seconds_since_sweep: age }) => age ?? [])
  if (ages.length === 0) return [{ check: 'worker', level: 'attention', text: 'no worker has swept yet' }]
  const age = Math.min(...ages)
  return [
    {
      check: 'worker',
      level: age > SWEEP_LATE_SECONDS ? 'attention' : 'ok',
      text: `last sweep ${durationText(age * 1_000)} ago`,
    },
  ]
}

function checkAge(what: 'event' | 'send', seconds: number | null): Check {
  const level =
    (seconds ?? 0) > WAITING_PROBLEM_SECONDS ? 'problem' : (seconds ?? 0) > WAITING_ATTENTION_SECONDS ? 'attention' : 'ok'
  const text = seconds === null ? `no ${what} waits` : `the oldest ${what} has waited ${durationText(seconds * 1_000)}`
  return { check: 'queue', level, text }
}
