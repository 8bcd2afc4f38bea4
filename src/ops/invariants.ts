import type { Db } from '../db.ts'
import { type Check, checks, ledgerChecks } from './invariant-checks.ts'

/** Something that must hold of the rows, broken. */
export interface Violation {
  name: string
  /** Such as `I1`. */
  invariant: string
  count: number
  /** Up to 20 of them: keys of sends, `event:ID` or a time; never an address of its own. */
  subjects: string[]
}

/** Looks for rows that break what must hold; nothing found is an empty list. Changes nothing, and may run beside everything else. */
export async function checkInvariants(db: Db, staleAfterMs: number): Promise<Violation[]> {
  return run(db, checks, (sql) => (sql.includes('$1') ? [staleAfterMs] : []))
}

/** One request of the email API, as its sandbox tells. */
export interface LedgerCall {
  to: string | null
  accepted: boolean
  messageId: string | null
}

/** Compares with what the email API accepted, as it was before the rows are read. */
export async function checkLedger(db: Db, calls: readonly LedgerCall[]): Promise<Violation[]> {
  const accepted = calls.filter((call) => call.accepted)
  return run(db, ledgerChecks, () => [accepted.map(({ to }) => to), accepted.map(({ messageId }) => messageId)])
}

async function run(db: Db, checks: readonly Check[], values: (sql: string) => unknown[]): Promise<Violation[]> {
  const violations: Violation[] = []
  for (const { name, invariant, sql } of checks) {
    const { rows } = await db.query<{ subject: string; count: number }>(
      `select subject, count(*) over ()::int as count from (${sql}) found order by subject limit 20`,
      values(sql),
    )
    if (rows[0]) violations.push({ name, invariant, count: rows[0].count, subjects: rows.map(({ subject }) => subject) })
  }
  return violations
}
