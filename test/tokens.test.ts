import { describe, expect, test } from 'vitest'
import { createTokenCommand, listTokensCommand, revokeTokenCommand } from '../src/cli/token.ts'
import { authenticate, createToken, ensureToken, issueToken, listTokens, revokeToken } from '../src/ops/tokens.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

const HOUR = 3_600_000

describe('making tokens', () => {
  test('I17 a new token names its bearer, and the database holds nothing that could be used as one', async () => {
    const token = await createToken(pool, { name: 'ci', role: 'sender' })

    expect(token).toMatch(/^och_[\w-]{43}$/)
    expect(await authenticate(pool, token)).toEqual({ name: 'ci', role: 'sender' })
    const { rows } = await pool.query(`select row_to_json(api_tokens)::text || coalesce(
      (select string_agg(row_to_json(audit_log)::text, '') from audit_log), '') as everything from api_tokens`)
    expect(rows.map((row) => row.everything).join()).not.toContain(token.slice(4))
  })

  test('I12 making a token leaves who made it, by which way, and what it may do', async () => {
    await createToken(pool, { name: 'audited', role: 'operator', actor: 'mia', via: 'cli' })

    const { rows } = await pool.query(
      `select actor, via, action, after ->> 'role' as role from audit_log where after ->> 'name' = 'audited'`,
    )
    expect(rows).toEqual([{ actor: 'mia', via: 'cli', action: 'create_token', role: 'operator' }])
  })

  test('a fixed token that is ensured by many starts at once is one token and one line of audit', async () => {
    await Promise.all(Array.from({ length: 10 }, () => ensureToken(pool, 'och_fixed', { name: 'start', role: 'operator' })))

    expect(await authenticate(pool, 'och_fixed')).toEqual({ name: 'start', role: 'operator' })
    const { rows } = await pool.query(`select (select count(*) from api_tokens where name = 'start') as tokens,
      (select count(*) from audit_log where after ->> 'name' = 'start') as audits`)
    expect(rows).toEqual([{ tokens: '1', audits: '1' }])
  })

  test('a revoked token stays revoked when it is ensured again', async () => {
    await ensureToken(pool, 'och_revoked', { name: 'revoked', role: 'operator' })
    await pool.query(`update api_tokens set revoked_at = now() where name = 'revoked'`)

    await ensureToken(pool, 'och_revoked', { name: 'revoked', role: 'operator' })

    expect(await authenticate(pool, 'och_revoked')).toBeUndefined()
  })

  test('the command prints the token alone on one line', async () => {
    const { stdout, stderr, exitCode } = await createTokenCommand(pool, { role: 'reader', name: 'grafana' })

    expect({ stderr, exitCode }).toEqual({ stderr: '', exitCode: 0 })
    expect(stdout).toMatch(/^och_[\w-]{43}\n$/)
    expect(await authenticate(pool, stdout.trim())).toEqual({ name: 'grafana', role: 'reader' })
  })

  test('the command makes no token for a role that does not exist', async () => {
    const { stdout, stderr, exitCode } = await createTokenCommand(pool, { role: 'root', name: 'nobody' })

    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 2 })
    expect(stderr).toContain('--role')
    const { rows } = await pool.query(`select from api_tokens where name = 'nobody'`)
    expect(rows).toEqual([])
  })
})

describe('using tokens', () => {
  test('a token that is expired or unknown names nobody, and one that expires later still does', async () => {
    const expired = await createToken(pool, { name: 'old', role: 'reader', expiresAt: new Date(Date.now() - HOUR) })
    const expiring = await createToken(pool, { name: 'young', role: 'reader', expiresAt: new Date(Date.now() + HOUR) })

    expect(await authenticate(pool, expired)).toBeUndefined()
    expect(await authenticate(pool, 'och_unknown')).toBeUndefined()
    expect(await authenticate(pool, '')).toBeUndefined()
    expect(await authenticate(pool, expiring)).toEqual({ name: 'young', role: 'reader' })
  })

  test('a burst of uses writes the time of use once, and a use more than a minute later writes it again', async () => {
    const token = await createToken(pool, { name: 'busy', role: 'reader' })
    // The row's version in the heap: each write makes a new one.
    const written = async () => (await pool.query(`select xmin, last_used_at from api_tokens where name = 'busy'`)).rows[0]

    await authenticate(pool, token)
    const first = await written()
    await Promise.all(Array.from({ length: 10 }, () => authenticate(pool, token)))
    const second = await written()
    await pool.query(`update api_tokens set last_used_at = now() - interval '61 s' where name = 'busy'`)
    await authenticate(pool, token)
    const third = await written()

    expect(first.last_used_at).toBeInstanceOf(Date)
    expect(second).toEqual(first)
    expect(third.last_used_at.getTime()).toBeGreaterThanOrEqual(first.last_used_at.getTime())
  })
})

describe('ending tokens', () => {
  const by = { actor: 'person:mia', via: 'page', reason: 'leaked' }

  test('I12 a revoked token is refused from then on, and the first of ten revocations at once says who and why', async () => {
    const { id, token } = await issueToken(pool, { name: 'leaky', role: 'reader' })

    const outcomes = await Promise.all(
      Array.from({ length: 10 }, (_, index) => revokeToken(pool, id, { ...by, reason: `reason ${index}` })),
    )

    expect(outcomes.filter((outcome) => outcome === 'done')).toHaveLength(1)
    expect(outcomes.filter((outcome) => outcome === 'unchanged')).toHaveLength(9)
    expect(await authenticate(pool, token)).toBeUndefined()
    const { rows } = await pool.query(
      `select actor, via, before, audit.reason = revoked_reason and actor = revoked_by as same from audit_log audit, api_tokens
       where action = 'revoke_token' and subject = 'token:' || $1::text and api_tokens.id = $1::bigint`,
      [id],
    )
    expect(rows).toEqual([{ actor: 'person:mia', via: 'page', before: { name: 'leaky', role: 'reader' }, same: true }])
    expect(await revokeToken(pool, '999999999', by)).toBe('not_found')
  })

  test('they are listed page by page, newest first, and without anything that could be used', async () => {
    await pool.query('delete from api_tokens')
    const texts: string[] = []
    for (const name of ['t1', 't2', 't3'])
      texts.push(await createToken(pool, { name, role: 'reader', actor: 'person:mia', via: 'api' }))

    const first = await listTokens(pool, { limit: 2 })
    const [id] = JSON.parse(Buffer.from(first.next_cursor ?? '', 'base64url').toString())
    const second = await listTokens(pool, { limit: 2, cursor: [id] })

    expect(first.tokens.map((token) => token.name)).toEqual(['t3', 't2'])
    expect(second).toMatchObject({ tokens: [{ name: 't1', created_by: 'person:mia', revoked_at: null }], next_cursor: null })
    for (const text of texts) expect(JSON.stringify([first, second])).not.toContain(text.slice(4))
  })
})

describe('the commands', () => {
  const options = { by: 'root', unicode: true }

  test('a lifetime ends the token, and what is no lifetime is a usage error', async () => {
    const { stdout } = await createTokenCommand(pool, { role: 'reader', name: 'short-lived', expires: '90d' })
    const wrong = await createTokenCommand(pool, { role: 'reader', name: 'never-made', expires: 'soon' })

    expect(wrong).toEqual({ stdout: '', stderr: 'oncehook: --expires: must be like 90d or 12h, at most 3660d\n', exitCode: 2 })
    const { rows } = await pool.query(
      `select extract(epoch from expires_at - created_at)::int / 3600 as hours from api_tokens where name in ('short-lived', 'never-made')`,
    )
    expect(rows).toHaveLength(1)
    expect(rows[0].hours).toBeGreaterThanOrEqual(90 * 24 - 1)
    expect(rows[0].hours).toBeLessThanOrEqual(90 * 24)
    expect(await authenticate(pool, stdout.trim())).toEqual({ name: 'short-lived', role: 'reader' })
  })

  test('revoke takes an ID or a name, and guesses at no name that several have', async () => {
    await createToken(pool, { name: 'only', role: 'reader' })
    const one = await issueToken(pool, { name: 'several', role: 'reader' })
    const two = await issueToken(pool, { name: 'several', role: 'reader' })

    const byName = await revokeTokenCommand(pool, 'only', { ...options, reason: 'old' })
    const ambiguous = await revokeTokenCommand(pool, 'several', { ...options, reason: 'old' })
    const byId = await revokeTokenCommand(pool, one.id, { ...options, reason: 'old' })
    const again = await revokeTokenCommand(pool, one.id, { ...options, reason: 'old' })
    const left = await revokeTokenCommand(pool, 'several', { ...options, reason: 'old' })
    const unknown = await revokeTokenCommand(pool, 'nobody', { ...options, reason: 'old' })
    const unsaid = await revokeTokenCommand(pool, two.id, { ...options, reason: ' ' })

    expect(byName.stdout).toMatch(/^✓ Token \d+ is revoked\.\n$/)
    expect(ambiguous).toEqual({
      stdout: '',
      stderr: `oncehook: several tokens are named several; say which by its ID: ${two.id}, ${one.id}\n`,
      exitCode: 1,
    })
    expect(byId).toEqual({ stdout: `✓ Token ${one.id} is revoked.\n`, stderr: '', exitCode: 0 })
    expect(again).toEqual({ stdout: `✓ Token ${one.id} was revoked before.\n`, stderr: '', exitCode: 0 })
    expect(left.stdout).toBe(`✓ Token ${two.id} is revoked.\n`)
    expect(unknown).toEqual({
      stdout: '',
      stderr: 'oncehook: no token that works is named nobody, or has that ID\n',
      exitCode: 1,
    })
    expect(unsaid).toEqual({ stdout: '', stderr: 'oncehook: --reason: must say why\n', exitCode: 2 })
  })

  test('list is a table for people and whole values for pipes', async () => {
    await pool.query('delete from api_tokens')
    await pool.query(`insert into api_tokens (id, name, role, token_sha256, created_by, created_at, last_used_at)
      overriding system value values (41, 'grafana', 'reader', 'x', 'root', '2026-11-01T10:00:00Z', '2026-11-29T14:02:07Z')`)

    const { stdout: table } = await listTokensCommand(pool, { width: 100, unicode: true })
    const { stdout: piped } = await listTokensCommand(pool, {})

    expect(table).toBe('ID  NAME     ROLE    LAST USED (UTC)      EXPIRES (UTC)\n41  grafana  reader  2026-11-29 14:02:07  –\n')
    expect(piped).toBe('41\tgrafana\treader\t2026-11-01T10:00:00.000Z\troot\t2026-11-29T14:02:07.000Z\t\t\t\n')
  })
})
