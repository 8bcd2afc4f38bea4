import { beforeEach, describe, expect, test } from 'vitest'
import { type ReplayOptions, replayCommand, showRunCommand, stopRunCommand } from '../src/cli/replay.ts'
import { readConfig } from '../src/config.ts'
import { insertEvent, insertFollowUp, insertSend } from './support/ops-rows.ts'
import { emptyTables, sources } from './support/posting.ts'
import { patientDatabase } from './support/sends.ts'

const database = await patientDatabase()
const { pool, url } = database
const config = readConfig({
  sources,
  followUps: [
    {
      source: 'generic',
      type: 'invoice.paid',
      email: ({ id }: { id: string }) => ({
        key: `paid:${id}`,
        to: 'ada@example.com',
        from_email: 'billing@example.com',
        subject: 'Paid',
        html_body: 'Paid',
      }),
    },
  ],
})

type Given = Partial<ReplayOptions>
const replay = (id: string | undefined, options: Given = {}) =>
  replayCommand(pool, url, config, id, { by: 'mia', unicode: true, say: () => undefined, isWatched: false, ...options })
const runs = async () => (await pool.query('select state from runs order by created_at')).rows
const audits = async () => (await pool.query('select actor, via, action from audit_log order by id')).rows
const jobs = async () => (await pool.query(`select count(*)::int as count from pgboss.job`)).rows[0].count

const ids: string[] = []
beforeEach(async () => {
  await emptyTables(database)
  await pool.query('truncate runs, audit_log')
  ids.length = 0
  for (const id of ['e1', 'e2', 'e3']) ids.push(await insertEvent(pool, id, { source: 'generic', status: 'ignored' }))
  await insertSend(pool, 'paid:e1', { state: 'needs_review' })
})

describe('events replay', () => {
  test('as a dry run says what it would do, and how to do it', async () => {
    const { stdout, stderr, exitCode } = await replay(undefined, { source: 'generic', dryRun: true })
    const { rows } = await pool.query<{ id: string }>('select id from runs')
    const done = await replay(undefined, { plan: rows[0]?.id })

    expect(stdout.split('\n')).toEqual([
      `Planned   run ${rows[0]?.id}   3 events`,
      'Events:',
      '  3 want emails',
      'Emails:',
      '  2 would be sent',
      '  1 held by a send: needs a decision',
      '',
    ])
    expect({ stderr, exitCode }).toEqual({
      stderr: `To carry it out within 15 minutes: oncehook events replay --plan ${rows[0]?.id}\n`,
      exitCode: 0,
    })
    expect(done.stdout.split('\n').map((line) => line.replace(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/, 'then'))).toEqual([
      `Done   run ${rows[0]?.id}   3 events`,
      '3 gone through: 3 to be processed again',
      'Now: 3 waiting',
      'Emails: 0 sent · 0 failed',
      'Started then UTC by mia',
      '',
    ])
    expect([await jobs(), await audits()]).toEqual([3, [{ actor: 'mia', via: 'cli', action: 'replay' }]])
  })

  test('with --yes carries out what the filter takes', async () => {
    const { stdout } = await replay(undefined, {
      yes: true,
      eventId: 'e1, e3',
      status: 'ignored,failed',
      since: '1h',
      json: true,
    })

    expect(JSON.parse(stdout)).toMatchObject({ state: 'done', events: 2, queued: 2, filter: { event_ids: ['e1', 'e3'] } })
    expect(await jobs()).toBe(2)
  })

  test('of one event does as the API, and fails where that would', async () => {
    const [id = ''] = ids
    const first = await replay(id)
    const second = await replay(id)
    const none = await replay('999999')
    const wrong = await replay('x')

    expect(first).toEqual({ stdout: `event ${id}: waits to be processed again\n`, stderr: '', exitCode: 0 })
    expect(second).toEqual({ stdout: '', stderr: `oncehook: event ${id}: waits to be processed already\n`, exitCode: 1 })
    expect([none.exitCode, none.stderr, wrong.exitCode]).toEqual([1, 'oncehook: event 999999: no such event\n', 1])
    expect([await jobs(), await audits()]).toEqual([1, [{ actor: 'mia', via: 'cli', action: 'replay' }]])
  })

  test.each<[string | undefined, Given]>([
    [undefined, { source: 'generic' }],
    [undefined, {}],
    ['1', { source: 'generic' }],
    ['1', { plan: 'x' }],
    [undefined, { plan: 'x', type: 'paid' }],
    ['1', { dryRun: true }],
    [undefined, { plan: 'x', dryRun: true }],
    [undefined, { status: 'pending', yes: true }],
    [undefined, { since: 'yesterday', yes: true }],
  ])('of %s with %j is wrong usage', async (id, options) => {
    expect(await replay(id, options)).toMatchObject({ stdout: '', stderr: expect.stringMatching(/^oncehook: --/), exitCode: 2 })
    expect([await jobs(), await runs()]).toEqual([0, []])
  })

  test('of a plan that is not there says so', async () => {
    const expected = { stdout: '', stderr: 'oncehook: there is no such plan, or it has expired\n', exitCode: 1 }

    expect(await replay(undefined, { plan: 'x' })).toEqual(expected)
    expect(await replay(undefined, { plan: '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11' })).toEqual(expected)
  })
})

describe('before a person', () => {
  test.each([
    ['y', 'done', { stderr: '', exitCode: 0 }],
    ['YES ', 'done', { stderr: '', exitCode: 0 }],
    ['', 'planned', { stdout: '', stderr: 'Nothing was started.\n', exitCode: 1 }],
    ['yellow', 'planned', { stdout: '', stderr: 'Nothing was started.\n', exitCode: 1 }],
    [undefined, 'planned', { stdout: '', stderr: '\nInterrupted: nothing was started.\n', exitCode: 130 }],
  ])('asks with the dry run on one line; %j leaves the run %s', async (answer, state, result) => {
    const asked: string[] = []
    const ask = async (question: string) => {
      asked.push(question)
      return answer
    }

    expect(await replay(undefined, { source: 'generic', ask })).toMatchObject(result)
    expect(asked).toEqual(['Dry run: 3 events · 2 would send · 1 need a decision first.   Start? [y/N] '])
    expect(await runs()).toEqual([{ state }])
    expect(await jobs()).toBe(state === 'done' ? 3 : 0)
  })

  test('asks in ASCII where a terminal knows no more', async () => {
    let asked = ''
    const ask = async (question: string) => {
      asked = question
      return 'n'
    }
    await replay(undefined, { source: 'generic', ask, unicode: false })

    expect(asked).toBe('Dry run: 3 events - 2 would send - 1 need a decision first.   Start? [y/N] ')
  })
})

/** A run of all events that has been gone through, a moment ago. */
async function doneRun(): Promise<string> {
  await pool.query(`update webhook_events set status = 'processed', processed_at = now() where status = 'ignored'`)
  const { rows } = await pool.query<{ id: string }>(
    `insert into runs (events, filter, state, done, created_by, expires_at, started_at, started_by, via, ended_at)
     values ($1, '{}', 'done', 3, 'mia', now(), now(), 'mia', 'cli', now()) returning id`,
    [ids],
  )
  return rows[0]?.id ?? ''
}

describe('waiting for a run', () => {
  const waiting = { yes: true, wait: true, source: 'generic', lookEveryMs: 1 }
  const process = (status: string, event: string) =>
    pool.query(`update webhook_events set status = $1, processed_at = now() where event_id = $2`, [status, event])

  test('shows how far it is on a bar, and ends when all events are processed and their emails are out', async () => {
    const said: string[] = []
    const say = (text: string) => {
      said.push(text)
      if (said.length > 1) return
      // What a worker would do.
      void pool.query(`update webhook_events set status = 'processed', processed_at = now()`)
    }
    const { stdout, stderr, exitCode } = await replay(undefined, { ...waiting, isWatched: true, say })

    expect(said[0]).toMatch(/^replay [0-9a-f]{8} {2}░{14} {2}0\/3 {2}0 sent {2}0 failed$/)
    expect(said.at(-1)).toBe('\r\u001b[K')
    expect({ stderr, exitCode }).toEqual({ stderr: '', exitCode: 0 })
    expect(stdout).toContain('Now: 3 processed\nEmails: 0 sent · 0 failed\n')
  })

  test('goes on until the emails that it brings are out, though all events are processed', async () => {
    const plan = await doneRun()
    await insertSend(pool, 'paid:e3')
    await insertFollowUp(pool, ids[2] ?? '', 'paid:e3', { at: new Date('2999-01-01') })
    const said: string[] = []
    const say = (text: string) => {
      said.push(text)
      // What a worker would do.
      if (said.length === 1)
        void pool.query(`update email_sends set state = 'sent', completed_at = now() where dedupe_key = 'paid:e3'`)
    }

    const { stdout, exitCode } = await replay(undefined, { wait: true, lookEveryMs: 1, plan, isWatched: true, say })

    expect(said[0]).toMatch(/ 3\/3 {2}0 sent {2}0 failed$/)
    expect([exitCode, stdout]).toEqual([0, expect.stringContaining('Emails: 1 sent · 0 failed\n')])
  })

  test('counts what its own events have sent, and ends with 4 where one failed', async () => {
    await process('failed', 'e2')
    await insertSend(pool, 'paid:e3', { state: 'sent' })
    await insertFollowUp(pool, ids[2] ?? '', 'paid:e3', { at: new Date('2999-01-01') })
    await insertFollowUp(pool, ids[0] ?? '', 'paid:e1', { at: new Date('2020-01-01') })
    const plan = await doneRun()

    const { stdout, stderr, exitCode } = await replay(undefined, { wait: true, plan })

    expect(stdout).toContain('Emails: 1 sent · 0 failed\n')
    expect({ stderr, exitCode }).toEqual({ stderr: '! 1 failed: oncehook events list --status failed\n', exitCode: 4 })
  })

  test('interrupted says what was done and goes on without it, with 130', async () => {
    const controller = new AbortController()
    const { stderr, exitCode } = await replay(undefined, {
      ...waiting,
      isWatched: true,
      interrupted: controller.signal,
      say: () => controller.abort(),
    })

    expect(exitCode).toBe(130)
    expect(stderr).toMatch(
      /^Interrupted: 0 of 3 events were processed, 0 emails sent\. The workers go on with the rest: oncehook runs show [\w-]+, or stop it: oncehook runs stop [\w-]+\n$/,
    )
    expect(await jobs()).toBe(3)
  })

  test('interrupted before anything was started starts nothing', async () => {
    const interrupted = AbortSignal.abort()

    expect(await replay(undefined, { ...waiting, yes: false, ask: async () => 'y', interrupted })).toEqual({
      stdout: '',
      stderr: 'Interrupted: nothing was started.\n',
      exitCode: 130,
    })
    expect(await jobs()).toBe(0)
  })

  test('gives up where nothing moves, with 4', async () => {
    const { stderr, exitCode } = await replay(undefined, { ...waiting, stalledAfterMs: 0 })

    expect(exitCode).toBe(4)
    expect(stderr).toContain('! Nothing has moved for a while: is a worker running, and sending not paused? So far 0 of 3 events')
  })
})

describe('runs', () => {
  test('show says how far one is, and stop ends it', async () => {
    const run = JSON.parse((await replay(undefined, { source: 'generic', dryRun: true, json: true })).stdout)
    const options = { unicode: true }

    const shown = await showRunCommand(pool, run.plan, options)
    const stopped = await stopRunCommand(pool, run.plan, { ...options, by: 'noa' })
    const tooLate = await stopRunCommand(
      pool,
      JSON.parse((await replay(undefined, { source: 'generic', yes: true, json: true })).stdout).id,
      options,
    )

    expect(run.id).toBe(run.plan)
    expect(shown.stdout).toMatch(/^Planned {3}run [\w-]+ {3}3 events\n/)
    expect(stopped.stdout).toMatch(
      /^Stopped {3}run [\w-]+ {3}3 events\n0 gone through: 0 to be processed again\nStopped .* UTC by noa\n$/,
    )
    expect(tooLate).toEqual({ stdout: '', stderr: 'oncehook: it has ended already\n', exitCode: 1 })
    expect(await showRunCommand(pool, 'x', options)).toEqual({
      stdout: '',
      stderr: 'oncehook: no run has this ID\n',
      exitCode: 1,
    })
  })
})
