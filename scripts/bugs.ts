// biome-ignore-all lint/suspicious/noTemplateCurlyInString: pieces of code

/** A bug to plant, and the test that is to see it: its file, and a part of its name. */
export interface Bug {
  name: string
  /** File, exact text, replacement. */
  changes: readonly (readonly [file: string, text: string, replacement: string])[]
  test: readonly [file: string, name: string]
}

const inMatch = (text: string, replacement: string): Bug['changes'] => [['src/sends/match.ts', text, replacement]]
const match = 'test/match.test.ts'

/** What would send twice, lose an event, settle falsely or forget, were it in the code. */
export const bugs: readonly Bug[] = [
  // --- Events ---
  {
    name: 'acknowledge before the commit',
    changes: [
      [
        'src/events/batch.ts',
        '  let inserted: Set<string>\n',
        `  for (const { delivery, resolve } of batch) resolve(delivery.events.map((event) => recorded(event, 'accepted')))\n  let inserted: Set<string>\n`,
      ],
    ],
    test: ['test/record-faults.test.ts', 'is a 503 when the answer to the commit is lost'],
  },
  {
    name: 'a new event amid a storm of redeliveries is acknowledged without being stored',
    changes: [
      [
        'src/events/batch.ts',
        'if (fresh.length > 0) await recordBatch(pool, statements, fresh)',
        "for (const { delivery, resolve } of fresh) resolve(delivery.events.map((event) => recorded(event, 'accepted')))",
      ],
    ],
    test: ['test/record-storms.test.ts', 'new events amid a storm'],
  },
  {
    name: 'a storm is acknowledged when storage goes away',
    changes: [
      [
        'src/events/batch.ts',
        'return isStorageAway(error) && !isDeadlock(error) ? refuse(batch, error) : recordBatch(pool, statements, batch)',
        'held = items.map(() => undefined)',
      ],
      [
        'src/events/batch.ts',
        'if (fresh.length > 0) await recordBatch(pool, statements, fresh)',
        "for (const { delivery, resolve } of fresh) resolve(delivery.events.map((event) => recorded(event, 'duplicate')))",
      ],
    ],
    test: ['test/record-storms.test.ts', 'nothing is acknowledged in a storm when storage goes away'],
  },
  {
    name: 'a noisy source takes all places',
    changes: [
      ['src/events/admission.ts', 'if (own.requests >= free * SHARE_OF_FREE) return false', 'if (free <= 0) return false'],
    ],
    test: ['test/overload.test.ts', 'does not keep another from being recorded'],
  },
  {
    name: 'nothing is kept free for sources that are never delivered again',
    changes: [['src/events/admission.ts', 'const KEPT_FREE = 1 / 8', 'const KEPT_FREE = 0']],
    test: ['test/admission.test.ts', 'of a source that is never delivered again are refused last'],
  },
  {
    name: 'more is let in while the commits are late',
    changes: [['src/events/admission.ts', 'if (!isOnce && isLate(own)) return false', '']],
    test: ['test/admission.test.ts', 'let nothing more in'],
  },
  {
    name: 'a place under way is not given back',
    changes: [['src/events/routes.ts', '      leave()\n', '']],
    test: ['test/overload.test.ts', 'after an overload everything is taken again'],
  },
  {
    name: 'a refusal of an overload waits for one that comes later',
    changes: [['src/events/shedding.ts', 'if (waiting.push(answer) === 1)', 'if (waiting.push(answer) === 2)']],
    test: ['test/overload.test.ts', 'told of once a second'],
  },
  {
    name: 'the last log lines of a process are lost',
    changes: [['src/log.ts', "  process.on('exit', flush)\n", '']],
    test: ['test/log.test.ts', 'lines that are gathered are all written'],
  },
  {
    name: 'verify what was parsed and written again',
    changes: [
      [
        'src/events/routes.ts',
        'const request = { headers: req.headersDistinct, body, query',
        'const request = { headers: req.headersDistinct, body: Buffer.from(JSON.stringify(JSON.parse(body.toString()))), query',
      ],
    ],
    test: ['test/receive-bodies.test.ts', 'C-01'],
  },
  {
    name: 'a tolerance that is no number switches the check of the time off',
    changes: [
      ['src/providers/signature.ts', '!(nowSeconds - signedAt <= toleranceSeconds)', 'nowSeconds - signedAt > toleranceSeconds'],
      ['src/providers/signature.ts', '!(signedAt - nowSeconds <= toleranceSeconds)', 'signedAt - nowSeconds > toleranceSeconds'],
    ],
    test: ['test/signature.test.ts', 'C-17'],
  },
  {
    name: 'the ninth event of a source in a batch gets no job',
    changes: [
      ['src/events/insert.ts', 'return Math.floor(count / MOST_EVENTS_IN_JOB)', 'return count < MOST_EVENTS_IN_JOB ? 0 : null'],
    ],
    test: ['test/insert.test.ts', 'has a job that names it'],
  },
  {
    name: 'a queue of the port goes on taking connections during a stop',
    changes: [['src/http-server.ts', 'await Promise.all(servers.map(close))', 'await close(http)']],
    test: ['test/http-server.test.ts', 'then none takes a connection'],
  },
  {
    name: 'a target for on conflict',
    changes: [
      ['src/events/insert.ts', '${values} on conflict do nothing`', '${values} on conflict (source, event_id) do nothing`'],
    ],
    test: ['test/record-redeliveries.test.ts', 'is a duplicate when it comes back under a new delivery ID'],
  },
  {
    name: 'no second unique key',
    changes: [
      [
        'migrations/0001_events.sql',
        'create unique index webhook_events_body_once on webhook_events (source, type, body_sha256) nulls not distinct\n',
        'create index webhook_events_body_once on webhook_events (source, type, body_sha256)\n',
      ],
    ],
    test: ['test/record-redeliveries.test.ts', 'is a duplicate when it comes back under a new delivery ID'],
  },
  {
    name: 'no first unique key',
    changes: [['migrations/0001_events.sql', '  constraint webhook_events_once unique (source, event_id),\n', '']],
    test: ['test/record-redeliveries.test.ts', 'C-34'],
  },
  {
    name: 'an event that is processed is processed again',
    changes: [
      [
        'src/follow-ups/rules.ts',
        `      where id = $1 and status = 'pending' and processed_at is null\`,\n    values: [event.id, status, error],`,
        '      where id = $1`,\n    values: [event.id, status, error],',
      ],
    ],
    test: ['test/follow-up.test.ts', 'two workers whose rules say different things'],
  },
  {
    name: 'an event is processed in a commit of its own',
    changes: [
      [
        'src/follow-ups/rules.ts',
        'const repeated = await followUp(tx, ',
        'const repeated = (await inTransaction(deps.pool, (own) => markProcessed(own, event, closing))) && await followUp(tx, ',
      ],
      ['src/follow-ups/rules.ts', '  if (!(await markProcessed(tx, event, closing))) return false\n', ''],
    ],
    test: ['test/follow-up.test.ts', 'a crash between the rule and the commit leaves nothing'],
  },
  {
    name: 'no job for a send that is queued',
    changes: [['src/sends/trigger.ts', `  await enqueue(tx, [{ key, urgency: request.urgency ?? 'fresh' }])\n`, '']],
    test: ['test/send-answers.test.ts', 'ten triggers of a rejected send queue it once'],
  },

  // --- Claim and call ---
  {
    name: 'no claim token before the call',
    changes: [
      [
        'src/sends/send-once.ts',
        'where dedupe_key = $1 and claim_token = $2 and state = any ($3) returning claim_token',
        'where dedupe_key = $1 and state = any ($3) returning claim_token',
      ],
    ],
    test: ['test/send-once.test.ts', 'the old worker cannot start while the new one has only claimed'],
  },
  {
    name: 'the call before its commit',
    changes: [
      [
        'src/sends/send-once.ts',
        `  if (isTooOld(claim) || !(await startCall(deps.pool, claim))) return 'nothing to do'\n`,
        `  await deps.call(claim.message)\n  if (isTooOld(claim) || !(await startCall(deps.pool, claim))) return 'nothing to do'\n`,
      ],
    ],
    test: ['test/fault-points.test.ts', 'zombie'],
  },
  {
    name: 'a rejected send is claimed without a trigger',
    changes: [
      [
        'src/sends/send-once.ts',
        `where dedupe_key = $1 and state = any ($3) and (state <> 'rejected' or send_after is not null)`,
        'where dedupe_key = $1 and state = any ($3)',
      ],
      [
        'src/sends/send-once.ts',
        `where dedupe_key = $1 and state = any ($2) and (state <> 'rejected' or send_after is not null)`,
        'where dedupe_key = $1 and state = any ($2)',
      ],
    ],
    test: ['test/send-once.test.ts', 'I1 I7 a send that is rejected is not called'],
  },
  {
    name: 'a claim whose commit is in doubt calls',
    changes: [
      [
        'src/sends/send-once.ts',
        `  const claim = await claimSend(deps.pool, key, leave === 'probe')\n`,
        `  const claim = await claimSend(deps.pool, key, leave === 'probe').catch(async () => {\n    const { rows } = await deps.pool.query('select claim_token, message, match_key from email_sends where dedupe_key = $1', [key])\n    return { key, attempt: rows[0].claim_token, message: rows[0].message, matchKey: rows[0].match_key, isProbe: false, at: performance.now() }\n  })\n`,
      ],
    ],
    test: ['test/fault-points.test.ts', 'at send.claim_commit_sent'],
  },
  {
    name: 'a claim of any age calls',
    changes: [['src/sends/send-once.ts', 'const CLAIM_GOOD_FOR_MS = 20_000', 'const CLAIM_GOOD_FOR_MS = 20_000_000']],
    test: ['test/send-once.test.ts', 'a claim older than 20 s is not called'],
  },
  {
    name: 'a rate slot of any age is used',
    changes: [['src/sends/send-once.ts', 'const SLOT_GOOD_FOR_MS = 1_000', 'const SLOT_GOOD_FOR_MS = 1_000_000']],
    test: ['test/send-once.test.ts', 'its rate slot is older than 1 s'],
  },

  // --- What answers mean ---
  {
    name: 'a 5xx counts as refused, and is repeated by the next trigger',
    changes: [['src/sends/outcome.ts', 'if (refusals.includes(status))', 'if (refusals.includes(status) || status >= 500)']],
    test: ['test/send-answers.test.ts', 'I7 C-53'],
  },
  {
    name: 'a timeout counts as not sent',
    changes: [['src/sends/outcome.ts', 'if (requestStarted === false)', `if (requestStarted === false || code === 'timeout')`]],
    test: ['test/send-answers.test.ts', 'I7 C-52'],
  },
  {
    name: 'what does not say whether the request had started counts as not sent',
    changes: [['src/sends/outcome.ts', 'if (requestStarted === false)', 'if (requestStarted !== true)']],
    test: ['test/outcome.test.ts', 'A connection error that does not say'],
  },
  {
    name: 'a 429 counts as unknown',
    changes: [['src/sends/outcome.ts', 'if (status === 429)', 'if (status === 430)']],
    test: ['test/send-answers.test.ts', 'waits twice as long as asked'],
  },
  {
    name: '429s for ever',
    changes: [['src/sends/record.ts', 'const CALLS_UNDER_RATE_LIMIT = 5', 'const CALLS_UNDER_RATE_LIMIT = 500']],
    test: ['test/send-answers.test.ts', 'for ever: five calls'],
  },
  {
    name: 'a refusal is repeated by its own job',
    changes: [['src/sends/record.ts', `if (outcome.kind === 'not_sent' &&`, `if (outcome.kind !== 'accepted' &&`]],
    test: ['test/send-answers.test.ts', 'I8 C-56'],
  },
  {
    name: 'an answer is recorded twice',
    changes: [
      [
        'src/sends/record.ts',
        `  if (!(await closeAttempt(tx, called, outcome, messageId))) return 'repeated'\n`,
        '  await closeAttempt(tx, called, outcome, messageId)\n',
      ],
    ],
    test: ['test/send-once.test.ts', 'what is recorded twice'],
  },
  {
    name: 'one message ID for two attempts',
    changes: [
      [
        'src/sends/record.ts',
        'case when not exists (select from send_attempts other where other.message_id = $6) then $6 end',
        '$6',
      ],
      ['migrations/0002_sends.sql', 'message_id text constraint send_attempts_one_message unique', 'message_id text'],
    ],
    test: ['test/send-once.test.ts', 'I10'],
  },
  {
    name: 'a late answer is thrown away',
    changes: [
      [
        'src/sends/lifecycle.ts',
        `sent: ['sending', 'needs_review', 'queued', 'rejected'],\n    rejected`,
        `sent: ['sending'],\n    rejected`,
      ],
    ],
    test: ['test/fault-points.test.ts', 'late_answer'],
  },
  {
    name: 'a late answer speaks for the call that is under way',
    changes: [
      [
        'src/sends/record.ts',
        "and (claim_token = $2 or $3 = 'sent' and state in",
        "and ($2::uuid is not null or $3 = 'sent' and state in",
      ],
    ],
    test: ['test/send-once.test.ts', 'does not speak for the call that is under way'],
  },

  // --- Sweeps ---
  {
    name: 'a stale call is queued again',
    changes: [
      [
        'src/sends/sweeps.ts',
        `update email_sends set state = 'needs_review', version`,
        `update email_sends set state = 'queued', version`,
      ],
    ],
    test: ['test/fault-points.test.ts', 'at send.response_received'],
  },
  {
    name: 'a stale claim is left alone',
    changes: [
      [
        'src/sends/sweeps.ts',
        `where state = any ($2) and claimed_at < now() - $1::float8`,
        `where state = any ($2) and claimed_at < now() - interval '1 year' - $1::float8`,
      ],
    ],
    test: ['test/fault-points.test.ts', 'at send.claimed stays claimed'],
  },
  {
    name: 'a swept claim gets no job',
    changes: [
      [
        'src/sends/sweeps.ts',
        '  await enqueue(\n    tx,\n    keys.filter((key) => !proven.includes(key)).map((key) => ({ key })),\n  )\n',
        '',
      ],
      [
        'src/sends/sweeps.ts',
        'async function requeueStaleClaims(tx: Tx, enqueue',
        'async function requeueStaleClaims(tx: Tx, _enqueue',
      ],
    ],
    test: ['test/sweeps.test.ts', 'a stale claim waits again with a job of its own'],
  },

  // --- Settlement: the lock, the facts, each clause of the rule ---
  {
    name: 'no lock of the message',
    changes: [['src/sends/join.ts', '  await lock(tx, `message:${messageId}`)\n', '']],
    test: ['test/settle.test.ts', 'at the same time'],
  },
  {
    name: 'no lock of the recipient',
    changes: [['src/sends/join.ts', '  if (matchKey !== null) await lock(tx, `recipient:${matchKey}`)\n', '']],
    test: ['test/settle-by-recipient.test.ts', 'starts again with the recipient that it finds only after it has waited'],
  },
  {
    name: 'later facts replace earlier ones',
    changes: [['src/sends/join.ts', '(${column} is null or ${column} > $2)', 'true']],
    test: ['test/settle.test.ts', 'C-42 of several times the earliest stays'],
  },
  {
    name: 'a weaker bounce replaces a stronger one',
    changes: [['src/sends/join.ts', `\${rank('bounce_kind')} < \${rank('$3')}`, `\${rank('bounce_kind')} <> \${rank('$3')}`]],
    test: ['test/settle.test.ts', 'C-62 a stronger kind of bounce'],
  },
  {
    name: 'a complaint closes an unknown send',
    changes: [['src/sends/join.ts', `  if (report.kind !== 'delivered' && report.kind !== 'bounced') return false\n`, '']],
    test: ['test/settle.test.ts', 'is not closed by a complaint'],
  },
  {
    name: 'of several candidates the first is taken',
    changes: inMatch(
      `  if (more.length > 0) return { parked: 'ambiguous', candidates: nearest(report, candidates) }\n`,
      '  void more\n  void nearest\n',
    ),
    test: [match, 'I7 a second candidate'],
  },
  {
    name: 'a call in flight is taken',
    changes: inMatch(`  if (candidate.outcome === 'in_flight') return 'in flight'\n`, ''),
    test: [match, 'a call in flight is waited for'],
  },
  {
    name: 'an address that could be the same is taken for it',
    changes: inMatch(`  if (acceptForm(report.recipient) !== acceptForm(candidate.recipient)) return 'other address'\n`, ''),
    test: [match, 'an event to ada+shop@example.com'],
  },
  {
    name: 'any time settles',
    changes: inMatch(`  if (after < -SETTLES_BEFORE_MS || after > SETTLES_AFTER_MS) return 'other time'\n`, ''),
    test: [match, 'minutes after the claim: other time'],
  },
  {
    name: 'other messages of the recipient do not matter',
    changes: inMatch(`    return 'other message'\n`, '    void 0\n'),
    test: [match, 'beside the unexplained message m2'],
  },
  {
    name: 'another subject does not matter',
    changes: inMatch(
      `  if (report.subject !== null && candidate.subject !== null && report.subject !== candidate.subject) return 'other subject'\n`,
      '',
    ),
    test: [match, 'other subject'],
  },
  {
    name: 'events settle on an account that others use',
    changes: inMatch(`  if (!around.isExclusive) return 'account not exclusive'\n`, ''),
    test: [match, 'account not exclusive'],
  },
  {
    name: 'an open breaker does not matter',
    changes: inMatch(`  if (!around.isBreakerClosed) return 'breaker open'\n`, ''),
    test: [match, 'breaker open'],
  },
  {
    name: 'an event settles past a resend that is under way',
    changes: inMatch(`  if (candidate.state === 'claimed' || candidate.state === 'sending') return 'resend under way'\n`, ''),
    test: [match, 'resend under way'],
  },
  {
    name: 'an event settles what a person has decided',
    changes: inMatch(`  if (candidate.state === 'sent' || candidate.state === 'abandoned') return 'decided'\n`, ''),
    test: [match, 'that is abandoned: decided'],
  },
  {
    name: 'any kind of event settles',
    changes: inMatch(
      `return report.kind === 'delivered' || report.kind === 'bounced' ? undefined : 'other kind'`,
      'return undefined',
    ),
    test: [match, 'the event opened for an unknown call'],
  },
  {
    name: 'candidates of any age do not count',
    changes: inMatch('CANDIDATE_BEFORE_MS = 14 * DAY_MS', 'CANDIDATE_BEFORE_MS = DAY_MS'),
    test: [match, 'I7 a second candidate that is days earlier'],
  },
  {
    name: 'a foreign event does not open the breaker',
    changes: [
      ['src/sends/settle.ts', `  if (reason !== 'foreign' || !rows[0]?.is_new) return\n`, '  if (rows.length >= 0) return\n'],
    ],
    test: ['test/settle-by-recipient.test.ts', 'opens the breaker once'],
  },

  // --- Hold, policies, people ---
  {
    name: 'unknown answers never hold',
    changes: [['src/sends/hold.ts', 'const UNKNOWN_BEFORE_HOLD = 5', 'const UNKNOWN_BEFORE_HOLD = 5_000']],
    test: ['test/hold.test.ts', 'only unknown answers count'],
  },
  {
    name: 'a refused key does not hold',
    changes: [['src/sends/hold.ts', '(outcome.httpStatus === 401 || outcome.httpStatus === 403)', 'outcome.httpStatus === 499']],
    test: ['test/hold.test.ts', '401 holds all sends at once'],
  },
  {
    name: 'a probe lifts the hold of a person',
    changes: [
      [
        'src/sends/hold.ts',
        'with old as (select held_reason from sending_control where held_by = $1 for',
        'with old as (select held_reason from sending_control where held_reason is not null for',
      ],
      ['src/sends/hold.ts', 'from old where held_by = $1 returning old.held_reason', 'from old returning old.held_reason'],
    ],
    test: ['test/hold.test.ts', 'pauses: nothing goes out'],
  },
  {
    name: 'a restore goes unnoticed',
    changes: [['src/sends/hold.ts', 'where database_id <> ${DATABASE}', 'where false and database_id <> ${DATABASE}']],
    test: ['test/hold.test.ts', 'sends nothing, probes nothing'],
  },
  {
    name: 'prefer_duplicate without an end',
    changes: [['src/sends/policies.ts', 'const PREFERRED_CALLS = 3', 'const PREFERRED_CALLS = 300']],
    test: ['test/policies.test.ts', 'is called three times at most'],
  },
  {
    name: 'prefer_duplicate while sending is held',
    changes: [
      ['src/sends/policies.ts', '         and not exists (select from sending_control where held_reason is not null)\n', ''],
    ],
    test: ['test/policies.test.ts', 'is not sent again while sending is held'],
  },
  {
    name: 'unguarded requests are counted without a lock',
    changes: [
      [
        'src/sends/policies.ts',
        "  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`unguarded:${key}:${excludeForm(recipient)}`])\n",
        '',
      ],
    ],
    test: ['test/policies.test.ts', 'twenty requests at once are five sends'],
  },
  {
    name: 'no version guards a decision',
    changes: [['src/sends/decide.ts', 'old.version = $3 and old.state', '$3::int is not null and old.state']],
    test: ['test/decide.test.ts', 'a stale view is refused'],
  },
  {
    name: 'the message of another send is taken',
    changes: [['src/sends/decide.ts', '         and not exists (select from send_attempts where message_id = $2)\n', '']],
    test: ['test/decide.test.ts', 'I10 the message ID of another send'],
  },
  {
    name: 'a retry makes no job',
    changes: [['src/sends/decide.ts', `  if (to === 'queued') await enqueue(tx, [{ key }])\n`, '']],
    test: ['test/decide.test.ts', 'makes one job and one call'],
  },

  // --- The schedules by themselves ---
  {
    name: 'schedules: a stale call is queued again',
    changes: [
      [
        'src/sends/sweeps.ts',
        `update email_sends set state = 'needs_review', version`,
        `update email_sends set state = 'queued', version`,
      ],
    ],
    test: ['test/schedules.test.ts', 'hold in'],
  },
  {
    name: 'schedules: no claim token before the call',
    changes: [
      [
        'src/sends/send-once.ts',
        'where dedupe_key = $1 and claim_token = $2 and state = any ($3) returning claim_token',
        'where dedupe_key = $1 and state = any ($3) returning claim_token',
      ],
    ],
    test: ['test/schedules.test.ts', 'hold in'],
  },
  {
    name: 'schedules: of several candidates the first is taken',
    changes: inMatch(
      `  if (more.length > 0) return { parked: 'ambiguous', candidates: nearest(report, candidates) }\n`,
      '  void more\n  void nearest\n',
    ),
    test: ['test/schedules.test.ts', 'hold in'],
  },
  {
    name: 'schedules: no version guards a decision',
    changes: [['src/sends/decide.ts', 'old.version = $3 and old.state', '$3::int is not null and old.state']],
    test: ['test/schedules.test.ts', 'hold in'],
  },
  {
    name: 'schedules: a lost connection counts as not sent',
    changes: [['src/sends/outcome.ts', 'if (requestStarted === false)', 'if (requestStarted !== undefined)']],
    test: ['test/schedules.test.ts', 'hold in'],
  },
  {
    name: 'a resend that is refused frees the key of an email that is proven',
    changes: [
      [
        'src/sends/record.ts',
        "moved.state !== 'sent' && (await closeProven(tx, [called.key])).length > 0",
        "moved.state !== 'sent' && (await closeProven(tx, [])).length > 0",
      ],
    ],
    test: ['test/proven-resends.test.ts', 'during its resend, which ends with 422'],
  },
  {
    name: 'an event does not close a resend that waits to be repeated',
    changes: [
      [
        'src/sends/lifecycle.ts',
        "event: { sent: ['needs_review', 'queued', 'rejected'] }",
        "event: { sent: ['needs_review', 'queued'] }",
      ],
    ],
    test: ['test/proven-resends.test.ts', 'while its resend waits to be repeated: it is not'],
  },
  {
    name: 'an email to another recipient is delivered by the one before it',
    changes: [
      ['src/sends/join.ts', 'own.id = ${attempt} and lower(own.recipient) = lower(email_sends.recipient)', 'own.id = ${attempt}'],
    ],
    test: ['test/proven-resends.test.ts', 'another recipient that took the free key'],
  },
  {
    name: 'a late answer of an older call changes nothing',
    changes: [
      ['src/sends/record.ts', "(claim_token = $2 or $3 = 'sent' and state in", "(claim_token = $2 or $3 = 'never' and state in"],
    ],
    test: ['test/proven-resends.test.ts', 'while its resend is refused'],
  },
]
