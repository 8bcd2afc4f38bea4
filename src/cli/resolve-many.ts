import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { openJobs } from '../follow-ups/queue.ts'
import { createLog } from '../log.ts'
import { CONFIRMED_FROM, type DecisionPlan, findPlan, type PlanRequest, planDecisions, runPlan } from '../ops/bulk-decisions.ts'
import { reasonSchema, SECOND_PERSON } from '../ops/decide-send.ts'
import { readRunId } from '../ops/filters.ts'
import { countText, type Label, skippedWords, verdictWords } from '../ops/words.ts'
import { verdicts } from '../sends/suggest.ts'
import { jsonOutput, manyText, mark, type OutputOptions, table, tabSeparated, tag, usageError, words } from './output.ts'
import { actorFor, confirmed, decisions, type ResolveOptions, rulesOf } from './resolve.ts'
import { INTERRUPTED } from './terminal.ts'

type Options = ResolveOptions & { yes?: boolean | undefined }

/** `oncehook sends resolve --keys …|--filter …|--plan …`: the same as `POST /v1/resolve`: first what would change, then each by itself. */
export async function resolveManyCommand(pool: pg.Pool, databaseUrl: string, options: Options): Promise<CommandResult> {
  const { keys, filter, plan } = options
  if ([keys, filter, plan].filter((each) => each !== undefined).length !== 1)
    return usageError([{ path: 'keys', message: 'say one of a key, --keys, --filter and --plan' }])
  if (options.reopen || options.messageId !== undefined || options.version !== undefined)
    return usageError([{ path: 'keys', message: '--reopen, --message-id and --version are for a single send' }])
  if (plan !== undefined) {
    const known = readRunId(plan)
    const planned = known ? await findPlan(pool, known) : undefined
    if (!planned) return noSuchPlan
    const actor = await actorFor(pool, planned.decision, options)
    return typeof actor === 'string' ? carryOut(pool, databaseUrl, planned, actor, options) : actor
  }
  const request = requestOf(options)
  if ('exitCode' in request) return request
  const actor = await actorFor(pool, request.decision, options)
  if (typeof actor !== 'string') return actor
  const planned = await planDecisions({ pool }, request, actor)
  return options.dryRun ? dryRun(planned, options) : carryOut(pool, databaseUrl, planned, actor, options)
}

const noSuchPlan: CommandResult = { stdout: '', stderr: 'oncehook: there is no such plan, or it has expired\n', exitCode: 1 }

function requestOf({ decision: given, reason: why, keys, filter }: Options): PlanRequest | CommandResult {
  const decision = decisions.find((each) => each === given)
  if (!decision) return usageError([{ path: 'decision', message: `say one of ${decisions.join(', ')}` }])
  const reason = reasonSchema.safeParse(why ?? '')
  if (!reason.success) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))
  if (keys) return { decision, reason: reason.data, sends: keys.filter((key) => !key.includes('\0')).map((key) => ({ key })) }
  const suggestion = verdicts.find((verdict) => verdict === filter)
  if (!suggestion && filter !== 'all') return usageError([{ path: 'filter', message: `say one of ${verdicts.join(', ')}, all` }])
  return { decision, reason: reason.data, filter: { suggestion } }
}

function dryRun(plan: DecisionPlan, options: Options): CommandResult {
  if (options.json) return { stdout: jsonOutput({ plan: plan.id, ...plan }), stderr: '', exitCode: 0 }
  const hint = plan.will_change === 0 ? '' : `To do it within 10 minutes: oncehook sends resolve --plan ${plan.id}\n`
  return { stdout: planText(plan, options), stderr: `${countsText(plan, options)}${hint}`, exitCode: 0 }
}

async function carryOut(
  pool: pg.Pool,
  databaseUrl: string,
  plan: DecisionPlan,
  actor: string,
  options: Options,
): Promise<CommandResult> {
  // One that runs or has run is answered as it is.
  const refusal = plan.state === 'planned' ? await agreed(plan, options) : undefined
  if (refusal) return refusal
  const { enqueueSends } = await openJobs(databaseUrl)
  const deps = { pool, enqueueSends, ...rulesOf(options), log: createLog('silent', 'cli') }
  const by = { actor, via: 'cli', confirm: plan.will_change }
  const ran = await runPlan(deps, plan.id, by)
  if (ran.outcome === 'second_person_needed') {
    const stderr = `${mark('bad', `Nothing was changed: ${SECOND_PERSON}.`, options)}\nWithin 10 minutes: oncehook sends resolve --plan ${plan.id} --by …\n`
    return { stdout: '', stderr, exitCode: 1 }
  }
  if (ran.outcome !== 'done') return noSuchPlan
  const { decided, skipped } = ran.plan
  const exitCode = skipped === 0 ? 0 : decided === 0 ? 3 : 4
  if (options.json) return { stdout: jsonOutput(ran.plan), stderr: '', exitCode }
  return { stdout: planText(ran.plan, options), stderr: countsText(ran.plan, options), exitCode }
}

/** Whether whoever asks means it: a resend in words, many by their count. Answers how the command ends if not. */
async function agreed(plan: DecisionPlan, options: Options): Promise<CommandResult | undefined> {
  const { will_change: count, decision } = plan
  if (count === 0) return { stdout: planText(plan, options), stderr: countsText(plan, options), exitCode: 3 }
  if (decision === 'retry')
    return confirmed(`Where the first email did go out, ${manyText(count, 'recipient')} may get it twice.`, options)
  const isCounted = count >= CONFIRMED_FROM
  if (options.ask && !options.yes) {
    const question = `${countsText(plan, options).trimEnd()}   Confirm ${manyText(count, 'decision')}? ${isCounted ? `Type ${count}:` : '[y/N]'} `
    const answer = await options.ask(words(question, options))
    if (answer === undefined) return { stdout: '', stderr: '\nInterrupted: nothing was changed.\n', exitCode: INTERRUPTED }
    const isMeant = isCounted ? answer.trim() === String(count) : /^y(es)?$/i.test(answer.trim())
    return isMeant ? undefined : { stdout: '', stderr: 'Nothing was changed.\n', exitCode: 1 }
  }
  if (isCounted ? options.confirm === String(count) : options.yes === true) return undefined
  const message = isCounted ? `say --confirm ${count} if so many are to be decided` : 'nobody can be asked here: say it'
  return usageError([{ path: isCounted ? 'confirm' : 'yes', message }])
}

function countsText({ state, will_change, decided, skipped, has_more }: DecisionPlan, options: OutputOptions): string {
  const first = state === 'planned' ? `${countText(will_change)} will change` : `${countText(decided)} decided`
  const more = has_more ? ' · more match than one plan takes: do it again after this one' : ''
  return words(`${first} · ${countText(skipped)} skipped${more}\n`, options)
}

const labels = {
  will_change: { word: 'Will change', icon: '→', ascii: '>', tone: 'busy' },
  decided: { word: 'Decided', icon: '✓', ascii: '+', tone: 'good' },
  skipped: { word: 'Skipped', icon: '–', ascii: '-', tone: 'quiet' },
} as const satisfies Record<DecisionPlan['sends'][number]['result'], Label>

type Skipped = DecisionPlan['sends'][number]['skipped']

function planText({ sends }: DecisionPlan, options: OutputOptions): string {
  const why = (skipped: Skipped) => (skipped === null ? '' : skippedWords[skipped])
  if (options.width === undefined)
    return tabSeparated(
      sends.map(({ result, dedupe_key, recipient, suggestion, skipped }) => [result, dedupe_key, recipient, suggestion, skipped]),
    )
  if (sends.length === 0) return ''
  const rows = sends.map(({ result, dedupe_key, recipient, suggestion, skipped }) => [
    tag(labels[result], options),
    { text: dedupe_key },
    { text: recipient ?? words('–', options) },
    { text: suggestion === null ? words('–', options) : verdictWords[suggestion] },
    { text: why(skipped) },
  ])
  return table(['RESULT', 'KEY', 'TO', 'SUGGESTED', 'WHY'], rows, [1, 4, 2], options)
}
