import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { attachCommand } from '../src/cli/attach.ts'
import { listAuditCommand } from '../src/cli/audit.ts'
import { armFault } from '../src/cli/faults.ts'
import { type ResolveOptions, resolveCommand } from '../src/cli/resolve.ts'
import { resolveManyCommand } from '../src/cli/resolve-many.ts'
import { showSendCommand } from '../src/cli/sends.ts'
import { showSendingCommand, switchMatchingCommand, switchSendingCommand } from '../src/cli/switches.ts'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import { emptyTables } from './support/posting.ts'
import { jobsOf, patientDatabase, sendRow } from './support/sends.ts'

const database = await patientDatabase()
const { pool, url } = database
const CALLED = new Date('2026-11-29T14:02:07Z')
const key = 'invoice:INV-1042:paid'

/** A send whose only call ended unknown. */
async function unknownSend(key: string, columns: object = {}): Promise<void> {
  const at = { claimed_at: CALLED, called_at: CALLED, ended_at: CALLED }
  await insertSend(pool, key, { state: 'needs_review', queued_at: CALLED, last_error: 'no answer in 15 s', ...columns })
  await insertAttempt(pool, key, { outcome: 'unknown', ...at, ...columns })
}

/** A parked report of the customer's, 24 s after the call. */
async function parkedReport(messageId: string, columns: object = {}): Promise<string> {
  const event = await insertEvent(pool, `${messageId}:delivered`, { source: 'inboxili', type: 'delivered' })
  await insertReport(pool, event, {
    message_id: messageId,
    recipient: 'ada@example.com',
    match_key: 'ada@example.com',
    occurred_at: new Date(CALLED.getTime() + 24_000),
    has_own_time: true,
    parked: 'account not exclusive',
    ...columns,
  })
  return event
}

beforeEach(async () => {
  await emptyTables(database)
  await pool.query('truncate audit_log')
  await unknownSend(key)
})

const audited = async () =>
  (await pool.query('select actor, via, action, reason from audit_log where subject = $1 order by id', [`send:${key}`])).rows
const resolve = (options: Partial<ResolveOptions>, which = key) =>
  resolveCommand(pool, url, which, {
    reason: 'not in the log',
    by: 'mia',
    unicode: true,
    isExclusive: false,
    takesTwo: false,
    ...options,
  })

describe('sends resolve', () => {
  test('decides under the name of a person, and prints the API’s own object where that is wanted', async () => {
    const closed = await resolve({ decision: 'abandoned' })
    const again = await resolve({ reopen: true, reason: 'customer wrote' })
    const sent = await resolve({ decision: 'sent', messageId: 'm_93c', reason: 'seen in the log', json: true })

    expect(closed).toEqual({ stdout: `– Closed  ${key}\n`, stderr: '', exitCode: 0 })
    expect(again.stdout).toBe(`? Needs a decision  ${key}\n`)
    expect(JSON.parse(sent.stdout)).toMatchObject({
      dedupe_key: key,
      status: 'sent',
      message_id: 'm_93c',
      settled_by: 'person:mia',
    })
    expect(await audited()).toEqual([
      { actor: 'mia', via: 'cli', action: 'abandoned', reason: 'not in the log' },
      { actor: 'mia', via: 'cli', action: 'reopen', reason: 'customer wrote' },
      { actor: 'mia', via: 'cli', action: 'sent', reason: 'seen in the log' },
    ])
  })

  test.each<[Partial<ResolveOptions>, string]>([
    [{}, '--decision'],
    [{ decision: 'perhaps' }, '--decision'],
    [{ decision: 'sent', reopen: true }, '--decision'],
    [{ decision: 'abandoned', messageId: 'm' }, '--message-id'],
    [{ decision: 'abandoned', reason: ' ' }, '--reason'],
    [{ decision: 'abandoned', reason: undefined }, '--reason'],
    [{ decision: 'retry' }, '--confirm'],
    [{ decision: 'retry', confirm: 'yes' }, '--confirm'],
    [{ decision: 'abandoned', filter: 'all' }, '--filter'],
    [{ decision: 'abandoned', dryRun: true }, '--dry-run'],
  ])('with %j is wrong usage and decides nothing', async (options, name) => {
    const { stdout, stderr, exitCode } = await resolve(options)

    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 2 })
    expect(stderr).toContain(`oncehook: ${name}: `)
    expect([await sendRow(pool, key, 'state', 'version'), await audited()]).toEqual([{ state: 'needs_review', version: 1 }, []])
  })

  describe('where the configuration wants two people for a resend', () => {
    const retry = (by?: string, others: Partial<ResolveOptions> = {}) =>
      resolve({ decision: 'retry', confirm: 'send again', takesTwo: true, by, ...others })
    beforeEach(async () => {
      await pool.query('delete from people')
      await pool.query(`insert into people (name, role) values ('Mia', 'operator'), ('noa', 'operator'), ('rea', 'reader')`)
    })

    test('resends only when another one has said so too', async () => {
      expect(await retry('mia')).toEqual({
        stdout: `? Needs a decision  ${key}\n`,
        stderr: 'Noted: it is sent again when another person says so too.\n',
        exitCode: 0,
      })
      expect(await retry(' MIA')).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining('you have asked for it already'),
      })
      expect(await retry('noa')).toEqual({ stdout: `○ Waiting to send  ${key}\n`, stderr: '', exitCode: 0 })
      expect(await audited()).toEqual([
        { actor: 'person:Mia', via: 'cli', action: 'ask_retry', reason: 'not in the log' },
        { actor: 'person:noa', via: 'cli', action: 'retry', reason: 'not in the log' },
      ])
    })

    test.each([...[undefined, '', ' ', 'system', 'rea', 'nobody', 'Person:mia', 'person:person:mia', 'token:mia', 'mi\u200ba']])(
      'takes no --by %j, who is no operator',
      async (by) => {
        const { stderr, exitCode } = await retry(by)
        const planned = await resolveManyCommand(pool, url, {
          ...{ keys: [key], decision: 'retry', reason: 'x', dryRun: true, by, unicode: true, isExclusive: false, takesTwo: true },
        })

        expect([exitCode, planned.exitCode]).toEqual([2, 2])
        expect(stderr).toContain('oncehook: --by: ')
        expect(planned.stderr).toBe(stderr)
        expect(await audited()).toEqual([])
      },
    )

    test('sends show tells an ask as one', async () => {
      await retry('mia')

      const { stdout } = await showSendCommand(pool, key, { width: 120, unicode: true })
      expect(stdout).toMatch(/ asked +Mia: send it again, if another person says so too, because "not in the log" \(cli\)\n/)
      expect(stdout).not.toContain('decided')
    })

    test('a plan is carried out by another one, whom the audit names beside who made it', async () => {
      await pool.query(
        `with log as (insert into sending_logs (file_sha256, from_at, until_at, lines, known, missing, read_by, via, reason)
           values ('f', $1::timestamptz - interval '1 day', now(), 9, 3, 0, 'ann', 'cli', 'x') returning id)
         insert into log_absences (attempt, log) select attempts.id, log.id from log, send_attempts attempts where dedupe_key = $2`,
        [CALLED, key],
      )
      await pool.query('update email_sends sends set claim_token = id from send_attempts attempts where sends.dedupe_key = $1', [
        key,
      ])
      const common = { unicode: true, isExclusive: false, takesTwo: true, confirm: 'send again' }
      const dry = await resolveManyCommand(pool, url, {
        ...{ ...common, keys: [key], decision: 'retry', reason: 'not in the log', dryRun: true, by: ' MIA', json: true },
      })
      const { plan } = JSON.parse(dry.stdout)

      expect(await resolveManyCommand(pool, url, { ...common, plan })).toMatchObject({ exitCode: 2 })
      expect(await resolveManyCommand(pool, url, { ...common, plan, by: 'mia' })).toMatchObject({ exitCode: 1 })
      expect(await resolveManyCommand(pool, url, { ...common, plan, by: 'NOA' })).toMatchObject({ exitCode: 0 })
      const { stdout } = await listAuditCommand(pool, { width: 200, unicode: true })
      expect(stdout).toMatch(/person:noa +cli +send it again, as planned by Mia /)
    })

    test('decides anything else under any name', async () => {
      expect(await resolve({ decision: 'abandoned', takesTwo: true, by: 'nobody' })).toMatchObject({ exitCode: 0 })
    })
  })

  test('I16 resends only for who types so, after saying what that risks', async () => {
    const asked: string[] = []
    const answering = (answer: string | undefined) => async (question: string) => {
      asked.push(question)
      return answer
    }

    expect(await resolve({ decision: 'retry', ask: answering('yes') })).toEqual({
      stdout: '',
      stderr: 'Nothing was changed.\n',
      exitCode: 1,
    })
    expect(await resolve({ decision: 'retry', ask: answering(undefined) })).toEqual({
      stdout: '',
      stderr: '\nInterrupted: nothing was changed.\n',
      exitCode: 130,
    })
    expect(await jobsOf(pool, key)).toEqual([])
    const done = await resolve({ decision: 'retry', ask: answering(' send again ') })

    expect(done).toEqual({ stdout: `○ Waiting to send  ${key}\n`, stderr: '', exitCode: 0 })
    expect(await jobsOf(pool, key)).toHaveLength(1)
    expect(new Set(asked)).toEqual(
      new Set(['! If the first email did go out, ada@example.com gets it twice. Type "send again": ']),
    )
  })

  test('resends where nobody can be asked if the words are given', async () => {
    expect((await resolve({ decision: 'retry', confirm: 'send again' })).exitCode).toBe(0)
    expect(await jobsOf(pool, key)).toHaveLength(1)
  })

  test('I16 says what changed while the person decided, does nothing, and ends with 3', async () => {
    const event = await parkedReport('m_93c')
    const ask = async () => {
      await attachCommand(pool, key, { event, reason: 'it is', by: 'noa', isExclusive: false })
      return 'send again'
    }
    const { stdout, stderr, exitCode } = await resolve({ decision: 'retry', ask })
    const { version } = (await sendRow(pool, key, 'version')) as { version: number }

    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 3 })
    expect(stderr.replace(/\d\d:\d\d:\d\dZ/, '14:07:10Z')).toBe(
      `✕ Not saved: changed while you decided. 14:07:10Z a delivery report settled it as sent (version 1 → ${version}).\n`,
    )
    expect(await jobsOf(pool, key)).toEqual([])
  })

  test('of two people at once one decides, and the other is told by whom', async () => {
    const both = await Promise.all([resolve({ decision: 'abandoned', version: 1 }), resolve({ decision: 'sent', version: 1 })])

    expect(both.map(({ exitCode }) => exitCode).sort()).toEqual([0, 3])
    expect(both.find(({ exitCode }) => exitCode === 3)?.stderr).toMatch(
      /^✕ Not saved: changed while you decided\. \d\d:\d\d:\d\dZ mia settled it as (sent|abandoned) \(version 1 → 2\)\.\n$/,
    )
    expect(await audited()).toHaveLength(1)
  })

  test('of what can’t be decided so, or isn’t there, says so', async () => {
    await insertSend(pool, 'waiting')
    await insertSend(pool, 'other')
    await insertAttempt(pool, 'other', { message_id: 'm_other' })

    expect(await resolve({ decision: 'sent' }, 'waiting')).toEqual({
      stdout: '',
      stderr: '✕ Not saved: it is "Waiting to send" by now, which can\'t be decided so; --reopen first.\n',
      exitCode: 3,
    })
    // Nobody is asked to risk what can't be done anyway.
    const ask = () => expect.unreachable('asked')
    expect(await resolve({ decision: 'retry', ask }, 'waiting')).toMatchObject({ exitCode: 3 })
    expect((await resolve({ decision: 'sent', messageId: 'm_other' })).stderr).toMatch(
      /^✕ Not saved: another call has this message ID/,
    )
    for (const which of ['nobody', 'a\0b'])
      expect(await resolve({ decision: 'sent' }, which)).toMatchObject({
        stderr: expect.stringMatching(/^oncehook: no send has the key /),
        exitCode: 1,
      })
  })

  test('is named as the command to paste by sends show, which does what it says', async () => {
    await parkedReport('m_93c')
    const { stdout } = await showSendCommand(pool, key, { width: 120, unicode: true })

    expect(stdout).toContain('delivered, m_93c, perhaps of this send, parked: account not exclusive')
    expect(stdout).toContain(
      `Suggested: sent (grade B)   oncehook sends resolve ${key} --decision sent --message-id m_93c --reason "…"\n`,
    )
    expect((await resolve({ decision: 'sent', messageId: 'm_93c' })).exitCode).toBe(0)
  })
})

describe('sends resolve of many', () => {
  const many = (options: Partial<ResolveOptions> & { yes?: boolean }) =>
    resolveManyCommand(pool, url, {
      reason: 'as suggested',
      by: 'mia',
      unicode: true,
      width: 100,
      isExclusive: false,
      takesTwo: false,
      ...options,
    })

  test('looks first, changes nothing then, and carries out that very plan', async () => {
    await unknownSend('refund:re_80:done')
    await insertSend(pool, 'closed', { state: 'abandoned' })
    const given = { keys: [key, 'closed', 'nobody'], decision: 'abandoned' }
    const dry = await many({ ...given, dryRun: true })
    const [, plan = ''] = /--plan (\S+)\n$/.exec(dry.stderr) ?? []
    const before = await sendRow(pool, key, 'state')
    const done = await many({ plan, yes: true })
    const again = await many({ plan, yes: true })

    expect(dry.stdout).toBe(
      [
        'RESULT         KEY                    TO               SUGGESTED   WHY',
        "→ Will change  invoice:INV-1042:paid  ada@example.com  can't tell",
        '– Skipped      closed                 ada@example.com  –           needs no decision',
        '– Skipped      nobody                 –                –           no send has this key',
        '',
      ]
        .map((line) => line.trimEnd())
        .join('\n'),
    )
    expect(dry.stderr).toMatch(/^1 will change · 2 skipped\nTo do it within 10 minutes: oncehook sends resolve --plan \S+\n$/)
    expect([before, await sendRow(pool, key, 'state')]).toEqual([{ state: 'needs_review' }, { state: 'abandoned' }])
    expect(await sendRow(pool, 'refund:re_80:done', 'state')).toEqual({ state: 'needs_review' })
    expect([done.exitCode, done.stderr]).toEqual([4, '1 decided · 2 skipped\n'])
    expect([again.exitCode, again.stdout]).toEqual([4, done.stdout])
    expect(await audited()).toEqual([{ actor: 'mia', via: 'cli', action: 'abandoned', reason: 'as suggested' }])
  })

  test('asks a person, by the count where there are more than ten', async () => {
    for (let number = 0; number < 10; number += 1) await unknownSend(`more:${number}`)
    const asked: string[] = []
    const answering = (answer: string | undefined) => async (question: string) => {
      asked.push(question)
      return answer
    }
    const all = { filter: 'all', decision: 'abandoned' }

    expect(await many({ keys: [key], decision: 'sent', ask: answering('n') })).toMatchObject({ exitCode: 1 })
    expect(await many({ ...all, ask: answering('y') })).toMatchObject({ stderr: 'Nothing was changed.\n', exitCode: 1 })
    expect(await many({ ...all, ask: answering(undefined) })).toMatchObject({ exitCode: 130 })
    expect(await many({ ...all, yes: true })).toMatchObject({ stderr: expect.stringContaining('--confirm 11'), exitCode: 2 })
    expect((await many({ ...all, ask: answering('11') })).exitCode).toBe(0)
    expect(asked.slice(0, 2)).toEqual([
      '1 will change · 0 skipped   Confirm 1 decision? [y/N] ',
      '11 will change · 0 skipped   Confirm 11 decisions? Type 11: ',
    ])
    const { rows } = await pool.query('select distinct state from email_sends')
    expect(rows).toEqual([{ state: 'abandoned' }])
  })

  test('in bulk resends nothing that no sending log shows as unsent', async () => {
    const { exitCode, stderr } = await many({ filter: 'all', decision: 'retry', confirm: 'send again' })

    expect([exitCode, stderr]).toEqual([3, '0 will change · 1 skipped\n'])
    expect(await jobsOf(pool, key)).toEqual([])
  })

  test.each<[Partial<ResolveOptions>, string]>([
    [{ decision: 'sent' }, '--keys'],
    [{ keys: ['a'], filter: 'all', decision: 'sent' }, '--keys'],
    [{ keys: ['a'], decision: 'sent', version: 1 }, '--keys'],
    [{ filter: 'some', decision: 'sent' }, '--filter'],
    [{ filter: 'all' }, '--decision'],
    [{ filter: 'all', decision: 'sent', reason: '' }, '--reason'],
    [{ keys: [key], decision: 'sent' }, '--yes'],
  ])('with %j is wrong usage and decides nothing', async (options, name) => {
    expect(await many(options)).toMatchObject({ stdout: '', stderr: expect.stringContaining(`oncehook: ${name}: `), exitCode: 2 })
    expect(await audited()).toEqual([])
  })

  test('of a plan that is not there says so', async () => {
    for (const plan of ['x', '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11'])
      expect(await many({ plan })).toEqual({
        stdout: '',
        stderr: 'oncehook: there is no such plan, or it has expired\n',
        exitCode: 1,
      })
  })
})

describe('sends attach', () => {
  const attach = (event: string, options: object = {}) =>
    attachCommand(pool, key, { event, reason: 'the only one', by: 'mia', unicode: true, isExclusive: false, ...options })

  test('settles the send by the report, and a second time says that it is taken', async () => {
    const event = await parkedReport('m_93c')

    expect(await attach(event)).toEqual({ stdout: `✓ Delivered  ${key}\n`, stderr: '', exitCode: 0 })
    expect(await attach(event)).toEqual({
      stdout: '',
      stderr: '✕ Not saved: the report belongs to a send already.\n',
      exitCode: 1,
    })
    expect(await sendRow(pool, key, 'status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm_93c' })
  })

  test('of another mailbox wants that said, of an old version does nothing, of no report says so', async () => {
    const event = await parkedReport('m_93c', { recipient: 'bea@example.com', match_key: 'bea@example.com' })

    expect(await attach(event)).toMatchObject({ stderr: expect.stringContaining('say --other-mailbox'), exitCode: 1 })
    expect(await attach(event, { otherMailbox: true, version: 7 })).toMatchObject({
      stderr: '✕ Not saved: the send has changed since it was seen.\n',
      exitCode: 3,
    })
    expect(await attach('999999')).toMatchObject({ stderr: '✕ Not saved: no delivery report is in this event.\n', exitCode: 1 })
    expect(await attach('m_93c')).toMatchObject({ stderr: expect.stringContaining('--event: '), exitCode: 2 })
    expect(await sendRow(pool, key, 'state', 'version')).toEqual({ state: 'needs_review', version: 1 })
  })
})

describe('the switches', () => {
  const by = { reason: 'Inboxili is down', by: 'mia', unicode: true }

  test('pause and resume sending, and turn the matching, each under a name and for a reason', async () => {
    const paused = await switchSendingCommand(pool, true, by)
    const suggesting = await switchMatchingCommand(pool, 'suggest', { ...by, reason: 'a strange event' })
    const resumed = await switchSendingCommand(pool, false, { ...by, reason: 'it is up again' })
    const shown = await showSendingCommand(pool, { json: true })
    await switchMatchingCommand(pool, 'auto', by)

    expect(paused.stdout.replace(/since .* UTC by/, 'since then by')).toBe(
      '✕ Sending is paused since then by person:mia: Inboxili is down. Only a person resumes it.\n✓ Matching settles by itself\n0 waiting to be sent · 1 need a decision\n',
    )
    expect(suggesting.stdout).toMatch(/\n! Matching only suggests since .* UTC: a strange event\n/)
    expect(resumed.stdout).toMatch(/^✓ Sending runs\.\n/)
    expect(JSON.parse(shown.stdout)).toMatchObject({ paused: false, matching: 'suggest' })
    const { rows } = await pool.query(`select actor, action, reason from audit_log where subject = 'sending' order by id`)
    expect(rows.map((row) => Object.values(row).join(': '))).toEqual([
      'mia: pause sending: Inboxili is down',
      'mia: matching suggest: a strange event',
      'mia: resume sending: it is up again',
      'mia: matching auto: Inboxili is down',
    ])
  })

  test('want a reason', async () => {
    expect(await switchSendingCommand(pool, true, { ...by, reason: '\u0007 ' })).toMatchObject({
      stderr: 'oncehook: --reason: must say why\n',
      exitCode: 2,
    })
    expect((await pool.query('select held_reason from sending_control')).rows).toEqual([{ held_reason: null }])
  })
})

test('audit list shows who changed what and why in a table, in the words of the page, and to programs by its names', async () => {
  await resolve({ decision: 'abandoned', reason: 'C-67 \u001b[2J\u202e' })
  const options = { subject: `send:${key}` }
  const table = await listAuditCommand(pool, { ...options, width: 120, unicode: true })
  const piped = await listAuditCommand(pool, options)
  const json = await listAuditCommand(pool, { ...options, json: true })

  expect(table.stdout.replace(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/, '2026-11-29 14:02:07')).toBe(
    [
      'WHEN (UTC)           WHO  VIA  WHAT               OF                          WHY',
      `2026-11-29 14:02:07  mia  cli  not sent, left so  send:${key}  C-67  [2J<U+202E>`,
      '',
    ].join('\n'),
  )
  expect(table.stderr).toBe('1 change\n')
  expect(piped.stdout.trimEnd().split('\t').slice(2, 7)).toEqual(['mia', 'cli', 'abandoned', `send:${key}`, 'C-67  [2J<U+202E>'])
  expect(JSON.parse(json.stdout)).toMatchObject({
    audit: [{ actor: 'mia', action: 'abandoned', reason: 'C-67  [2J\u202e' }],
    next_cursor: null,
  })
  for (const [action, found] of [
    ['abandoned', '1 change\n'],
    ['Abandoned', '1 change\n'],
    ['not sent, left so', '1 change\n'],
    ['Not sent, LEFT so', '1 change\n'],
    ['send it again', 'No change matches.\n'],
  ] as const)
    expect((await listAuditCommand(pool, { ...options, action })).stderr, action).toBe(found)
  expect((await listAuditCommand(pool, { since: 'yesterday' })).exitCode).toBe(2)
})

test.each([
  ['send again', 'retry, ask_retry, enable_person'],
  ['Sign-in', 'sign_in, sign_in_by_link, sign_out, sign_out_others, create_sign_in_link'],
  ['set_passwort', 'set_password'],
  [
    'x',
    'sent, abandoned, retry, ask_retry, reopen, attach, not ours, reconcile, read_log, replay, stop replay, pause sending, ' +
      'resume sending, matching auto, matching suggest, create_view, delete_view, export, sign_in, sign_in_by_link, sign_out, ' +
      'sign_out_others, create_person, create_sign_in_link, set_role, disable_person, enable_person, set_password, create_token, ' +
      'revoke_token',
  ],
])('audit list --action %s names no action, and is told which are near', async (action, near) => {
  const { stdout, stderr, exitCode } = await listAuditCommand(pool, { action })

  expect([stdout, exitCode]).toEqual(['', 2])
  expect(stderr).toBe(`oncehook: --action: must be an action, such as ${near}\n`)
})

describe('trigger --fault', async () => {
  const sandbox = await startInboxiliSandbox({ apiKey: 'ik_live_of_the_faults' })
  afterAll(() => sandbox.close())
  const settings = { production: false, inboxiliBaseUrl: sandbox.url }
  const send = async (to: string) => {
    const answer = await fetch(`${sandbox.url}/api/v1/transactional/send`, {
      method: 'POST',
      headers: { authorization: 'Bearer ik_live_of_the_faults', 'content-type': 'application/json' },
      body: JSON.stringify({ to, from_email: 'billing@example.com', subject: 'Paid', html_body: 'Paid' }),
    })
    return answer.status
  }

  test('has the sandbox fail its next call, or the next one to a recipient', async () => {
    expect(await armFault('5xx', { settings, to: 'ada@example.com' })).toBeUndefined()
    expect(await armFault('422', { settings })).toBeUndefined()

    expect([await send('bea@example.com'), await send('ada@example.com'), await send('ada@example.com')]).toEqual([422, 502, 200])
  })

  test('lists its faults, and knows each as the sandbox does', async () => {
    const { stdout = '' } = (await armFault('list', { settings })) ?? {}
    const names = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split(' ')[0] ?? '')

    expect(names).toContain('timeout')
    for (const name of names) expect(await armFault(name, { settings }), name).toBeUndefined()
    sandbox.disarm()
  })

  test('refuses in production, without a sandbox here, and for a name that is none', async () => {
    expect(await armFault('5xx', { settings: { ...settings, production: true } })).toMatchObject({ exitCode: 2 })
    for (const inboxiliBaseUrl of [undefined, 'https://api.inboxili.com', 'http://127.0.0.1:1'])
      expect(await armFault('5xx', { settings: { production: false, inboxiliBaseUrl } })).toMatchObject({ exitCode: 1 })
    expect(await armFault('constructor', { settings })).toMatchObject({ exitCode: 2 })
  })
})
