import { describe, expect, test } from 'vitest'
import { chooseColumns, readLogLine, readTime } from '../src/sends/sending-log.ts'

describe('columns', () => {
  test.each([
    [['To', 'ID', 'Status', 'Date', 'Subject'], { recipient: 0, message_id: 1, status: 2, time: 3, subject: 4 }],
    [
      ['message id', 'RECIPIENT_EMAIL', 'Delivery-Status', 'Sent At', 'Opens'],
      { message_id: 0, recipient: 1, status: 2, time: 3 },
    ],
    // The plainer name counts where there are two.
    [['id', 'message_id', 'event', 'status', 'email', 'to'], { message_id: 1, status: 3, recipient: 5 }],
    [['Message-ID', 'Status'], { message_id: 0, status: 1 }],
  ])('are guessed from %j', (header, columns) => {
    expect(chooseColumns(header, {})).toEqual({ columns })
  })

  test('that are given stand before what would be guessed', () => {
    expect(chooseColumns(['id', 'ref no', 'status', 'to'], { message_id: 'Ref_No' })).toEqual({
      columns: { message_id: 1, status: 2, recipient: 3 },
    })
  })

  test.each([
    ['none for the message', ['to', 'status'], {}, ['no column looks like the message_id; name it']],
    ['none for the status', ['id', 'to'], {}, ['no column looks like the status; name it']],
    ['a given one that is not there', ['id', 'status'], { time: 'When' }, ['the file has no column "When"']],
    ['two of one name', ['ID', 'id', 'status'], {}, ['the file has several columns "ID"; rename one']],
    ['one for two', ['id', 'status'], { recipient: 'id' }, ['one column can’t be two things']],
  ])('are refused: %s', (_what, header, given, problems) => {
    expect(chooseColumns(header, given)).toEqual({ problems })
  })
})

describe('a line', () => {
  const columns = { recipient: 0, message_id: 1, status: 2, time: 3, subject: 4 }
  const read = (...cells: string[]) => readLogLine({ line: 7, sha256: 'ab', cells }, columns, 'UTC')

  test('is read', () => {
    expect(read('Ada <Ada@Example.com>', ' m_1 ', 'Soft Bounce', '2026-11-29 14:02:07', 'Your receipt')).toEqual({
      line: 7,
      sha256: 'ab',
      says: 'bounced',
      bounceKind: 'soft',
      messageId: 'm_1',
      recipient: 'Ada@Example.com',
      occurredAt: new Date('2026-11-29T14:02:07Z'),
      namesZone: false,
      subject: 'Your receipt',
    })
  })

  test.each([
    ['sent', 'sent', null],
    ['ACCEPTED', 'sent', null],
    ['Delivered', 'delivered', null],
    ['bounced', 'bounced', 'unknown'],
    ['hard_bounce', 'bounced', 'hard'],
    ['soft-bounced', 'bounced', 'soft'],
    ['Complained', 'complained', null],
    ['spam complaint', 'complained', null],
    ['failed', 'failed', null],
    ['rejected', 'failed', null],
    ['opened', 'unclear', null],
    ['', 'unclear', null],
    ['constructor', 'unclear', null],
  ])('with the word "%s" says %s', (word, says, bounceKind) => {
    expect(read('a@example.com', 'm', word, '', '')).toMatchObject({ says, bounceKind })
  })

  test.each([
    'a@example.com, b@example.com',
    'a@example.com;b@example.com',
    'nobody',
    '',
    'a@b@example.com',
    'a\u0000@example.com',
  ])('names no recipient in "%s"', (to) => {
    expect(read(to, 'm', 'sent', '', '').recipient).toBeNull()
  })

  test.each([
    ['2026-11-29T14:02:07Z', true],
    ['2026-11-29 14:02:07 utc', true],
    ['2026-11-29T14:02:07+05:30', true],
    ['1795960927', true],
    ['2026-11-29T14:02:07', false],
    ['2026-11-29 14:02', false],
  ])('knows whether its time "%s" is certain whatever the zone', (time, namesZone) => {
    expect(read('a@example.com', 'm', 'sent', time, '').namesZone).toBe(namesZone)
  })

  test.each(['', '   ', 'm\u0000', 'x'.repeat(501)])('has no message ID in "%s"', (id) => {
    expect(read('a@example.com', id, 'sent', '', '').messageId).toBeNull()
  })
})

describe('a time', () => {
  test.each([
    ['2026-11-29T14:02:07Z', 'UTC', '2026-11-29T14:02:07.000Z'],
    ['2026-11-29 14:02', 'UTC', '2026-11-29T14:02:00.000Z'],
    ['2026-11-29 14:02:07.25 UTC', 'Europe/Berlin', '2026-11-29T14:02:07.250Z'],
    ['2026-11-29T14:02:07+05:30', 'UTC', '2026-11-29T08:32:07.000Z'],
    ['2026-11-29T14:02:07-0800', 'UTC', '2026-11-29T22:02:07.000Z'],
    ['1795960927', 'Europe/Berlin', '2026-11-29T14:02:07.000Z'],
    ['1795960927.5', 'UTC', '2026-11-29T14:02:07.500Z'],
    ['1795960927250', 'UTC', '2026-11-29T14:02:07.250Z'],
    ['2026-11-29 14:02:07', 'Europe/Berlin', '2026-11-29T13:02:07.000Z'],
    ['2026-07-01 14:02:07', 'Europe/Berlin', '2026-07-01T12:02:07.000Z'],
    ['2026-11-29 14:02:07', 'America/New_York', '2026-11-29T19:02:07.000Z'],
    ['2026-11-29 14:02:07', 'Asia/Kolkata', '2026-11-29T08:32:07.000Z'],
  ])('%s in %s is %s', (text, zone, instant) => {
    expect(readTime(text, zone)).toEqual(new Date(instant))
  })

  test.each([
    ['2026-10-25 02:30:00', 'Europe/Berlin', 'comes twice'],
    ['2026-03-29 02:30:00', 'Europe/Berlin', 'never comes'],
    ['2026-11-29', 'UTC', 'has no hour'],
    ['2026-02-30 10:00', 'UTC', 'is no day'],
    ['2026-11-29 25:00', 'UTC', 'is no hour'],
    ['11/29/2026 14:02', 'UTC', 'may be another day'],
    ['yesterday', 'UTC', 'is a word'],
    ['', 'UTC', 'is nothing'],
  ])('%s in %s is none, as it %s', (text, zone) => {
    expect(readTime(text, zone)).toBeNull()
  })
})
