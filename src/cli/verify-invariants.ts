import { z } from 'zod'
import type { CommandResult } from '../cli.ts'
import type { Db } from '../db.ts'
import { checkInvariants, checkLedger, type LedgerCall, type Violation } from '../ops/invariants.ts'
import { jsonOutput, type OutputOptions, painted, usageError, visible } from './output.ts'

export interface VerifyInvariantsOptions extends OutputOptions {
  /** Address of the sandbox, with or without the path of its ledger. */
  ledger?: string | undefined
}

const ledgerSchema = z.object({
  calls: z.array(z.object({ to: z.string().nullable(), accepted: z.boolean(), messageId: z.string().nullable() })),
})

/** `oncehook verify-invariants`: what is broken of that which must hold; exit code 0 if nothing is, 1 otherwise. */
export async function verifyInvariantsCommand(
  db: Db,
  staleAfterMs: number,
  options: VerifyInvariantsOptions,
): Promise<CommandResult> {
  if (options.ledger !== undefined && !/^https?:$/.test(URL.parse(options.ledger)?.protocol ?? ''))
    return usageError([{ path: 'ledger', message: 'must be an address such as http://127.0.0.1:41551' }])
  // Before the rows: what is accepted meanwhile has its row already, and isn't in the ledger yet.
  const calls = options.ledger === undefined ? [] : await readLedger(options.ledger)
  const violations = [...(await checkInvariants(db, staleAfterMs)), ...(await checkLedger(db, calls))]
  const exitCode = violations.length === 0 ? 0 : 1
  if (options.json) return { stdout: jsonOutput({ violations }), stderr: '', exitCode }
  if (exitCode === 0) return { stdout: 'Everything that must hold does.\n', stderr: '', exitCode }
  return { stdout: violations.map((violation) => violationText(violation, options)).join(''), stderr: '', exitCode }
}

async function readLedger(address: string): Promise<LedgerCall[]> {
  const answer = await fetch(new URL('/_sandbox/ledger', address), { signal: AbortSignal.timeout(10_000) })
  if (!answer.ok) throw new Error(`the ledger answered ${answer.status}`)
  return ledgerSchema.parse(await answer.json()).calls
}

function violationText({ name, invariant, count, subjects }: Violation, options: OutputOptions): string {
  const more = count > subjects.length ? [`    and ${count - subjects.length} more`] : []
  const head = painted({ text: `${invariant}  ${name}: ${count}`, tone: 'bad' }, options)
  return `${[head, ...subjects.map((subject) => `    ${visible(subject)}`), ...more].join('\n')}\n`
}
