import { defineConfig, env, key } from 'oncehook'

// Any sender that follows the specification; the fields of `data` are its own choice, so look into what yours sends.
export default defineConfig({
  sources: {
    acme: { provider: 'standard-webhooks', secrets: env.list('ACME_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'acme',
      type: 'invoice.paid',
      email: ({ data }) => ({
        key: key('invoice', data.id, 'paid'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'acme',
      type: 'payment.failed',
      email: ({ data }) => ({
        key: key('payment', data.id, 'failed'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'acme',
      type: 'payment.refunded',
      email: ({ data }) => ({
        key: key('payment', data.id, 'refunded'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'acme',
      type: 'subscription.ended',
      email: ({ data }) => ({
        key: key('subscription', data.id, 'ended'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'acme',
      type: 'payout.paid',
      email: ({ data }) => ({
        key: key('payout', data.id, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `${data.id} is paid out`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
