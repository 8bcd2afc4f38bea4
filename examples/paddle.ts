import { defineConfig, env, key } from 'oncehook'

// Paddle names the customer by an ID only. Put the address into custom_data at the checkout: transactions and subscriptions carry
// it. Paddle bounds the age of a signature to 5 s, and so do we.
export default defineConfig({
  sources: {
    paddle: { provider: 'paddle', secrets: env.list('PADDLE_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'paddle',
      type: 'transaction.completed',
      email: ({ data }) => ({
        key: key('transaction', data.id, 'completed'),
        to: data.custom_data.email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'paddle',
      type: 'transaction.payment_failed',
      // It is tried again for some days: at most one email for each of them.
      email: ({ data, occurred_at }) => ({
        key: key('transaction', data.id, 'failed', occurred_at.slice(0, 10)),
        to: data.custom_data.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'paddle',
      type: 'adjustment.updated',
      // At Paddle an adjustment has no custom_data; look the address up by its transaction_id.
      email: ({ data }) =>
        data.action === 'refund' &&
        data.status === 'approved' &&
        data.custom_data?.email && {
          key: key('adjustment', data.id, 'refunded'),
          to: data.custom_data?.email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'subscription ended',
      source: 'paddle',
      type: 'subscription.canceled',
      email: ({ data }) => ({
        key: key('subscription', data.id, 'ended'),
        to: data.custom_data.email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'paddle',
      type: 'payout.paid',
      email: ({ data }) => ({
        key: key('payout', data.id, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `Paddle has paid out ${data.id}`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
